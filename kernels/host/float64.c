/* float64.c - the float64 backend: every sum over many numbers in float64, on all threads. `parity` holds the other backends to it.
 *
 * It is the plain reference (kernels/ref) made fast enough for models as people have them: a 7B multiplies 7 x 10^9 weights with 17
 * tokens at each position. It shares the order of the computation with kernels/ref and not with the faster backends: inputs are not
 * rounded, and a sum's order does not depend on the number of tokens or threads. Operations without long sums are those
 * of kernels/ref, some of them divided between threads (host_ops.c). */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>
#include <string.h>

/* ---- products ---- */

/* A thread has a range of rows. It converts the inputs of up to MOST_TOKENS tokens to float64 once, as many as its slice has room for
 * next to a few rows (at least eight), and then decodes and multiplies its rows ROWS at a time. */
enum { ROWS = 4, MOST_TOKENS = 32, PANEL = 128 /* columns of rows and inputs that stay in the L1 cache */ };

/* Rows [first, first + n_rows) of a matrix times n_tokens inputs. */
typedef struct product {
    const apr_tensor *weight;
    const float *bias, *x; /* tokens are x_stride and out_stride numbers apart */
    float *out;
    int64_t first, n_rows, n_in, n_tokens, x_stride, out_stride;
} product;

/* A part of a product, and the buffers of its thread; rows in them are `width` numbers, n_in and zeros up to a multiple of 8. */
typedef struct part {
    const product *p;
    int64_t row, n_rows, token, n_tokens; /* the first, and how many */
    int64_t width;
    double *x, *rows; /* [n_tokens, width], [ROWS, width] */
    float *decoded;   /* [ROWS, n_in] */
} part;

LANES_INLINE void widen(const float *from, int64_t n, int64_t width, double *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (double)from[i];
    for (int64_t i = n; i < width; i++) to[i] = 0.0;
}

/* Adds the products of n columns of decoded rows [r, r + n_rows) with all tokens. */
LANES_INLINE void add_columns(const lanes_shape shape, const int n_rows, const part *a, int64_t r, int64_t column, int64_t n,
                              double sums[ROWS][MOST_TOKENS][8])
{
    const double *const rows = a->rows + r * a->width + column, *const x = a->x + column;
    int64_t t = 0;
    for (; t + 4 <= a->n_tokens; t += 4) lanes_add_f64(shape, n_rows, 4, rows, x + t * a->width, a->width, n, sums[r][t], MOST_TOKENS * 8);
    for (; t < a->n_tokens; t++) lanes_add_f64(shape, n_rows, 1, rows, x + t * a->width, a->width, n, sums[r][t], MOST_TOKENS * 8);
}

static double sum_of_eight(const double *x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

/* Up to ROWS rows, from row `row` of the product on. */
LANES_INLINE void multiply_some(const lanes_shape shape, const part *a, int64_t row, int64_t n_rows)
{
    const product *const p = a->p;
    const int tile = shape.bytes == 64 ? 4 : 2; /* rows whose sums with four tokens fit in registers */
    double sums[ROWS][MOST_TOKENS][8];

    memset(sums, 0, sizeof sums);
    apr_decode_rows(p->weight, p->first + row, n_rows, a->decoded);
    for (int64_t i = 0; i < n_rows; i++) widen(a->decoded + i * p->n_in, p->n_in, a->width, a->rows + i * a->width);
    for (int64_t column = 0; column < a->width; column += PANEL) {
        const int64_t n = a->width - column < PANEL ? a->width - column : PANEL;
        int64_t r = 0;
        for (; r + tile <= n_rows; r += tile) add_columns(shape, tile, a, r, column, n, sums);
        for (; r < n_rows; r++) add_columns(shape, 1, a, r, column, n, sums);
    }
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t t = 0; t < a->n_tokens; t++)
            p->out[(a->token + t) * p->out_stride + row + r] =
                (float)(sum_of_eight(sums[r][t]) + (p->bias != NULL ? (double)p->bias[row + r] : 0.0));
}

LANES_INLINE void multiply_body(const lanes_shape shape, const part *a)
{
    const product *const p = a->p;
    const int64_t end = a->row + a->n_rows;

    for (int64_t t = 0; t < a->n_tokens; t++) widen(p->x + (a->token + t) * p->x_stride, p->n_in, a->width, a->x + t * a->width);
    for (int64_t row = a->row; row < end; row += ROWS) multiply_some(shape, a, row, end - row < ROWS ? end - row : ROWS);
}

LANES_CLONES(multiply_part, multiply_body, (const part *a), a)

/* Rows [row, row + n_rows) of a product, by one thread. */
static void multiply_rows(const product *p, int64_t row, int64_t n_rows, float *slice, size_t n_floats)
{
    const int64_t width = (p->n_in + 7) / 8 * 8, decoded = (ROWS * p->n_in + 7) / 8 * 8, left = (int64_t)n_floats - decoded;
    const int64_t fit = left / 2 / width - ROWS, most = fit < MOST_TOKENS ? fit : MOST_TOKENS;
    part a = {.p = p, .row = row, .n_rows = n_rows, .width = width, .decoded = slice, .rows = (double *)(void *)(slice + decoded)};

    a.x = a.rows + ROWS * width;
    for (; a.token < p->n_tokens; a.token += most) {
        a.n_tokens = p->n_tokens - a.token < most ? p->n_tokens - a.token : most;
        multiply_part(&a);
    }
}

/* A head's matrix, transposed: out[t] = sum over i: x[t][i] * row i. */
static void multiply_transposed(const product *p, float *slice)
{
    enum { MOST = 8 };                               /* tokens whose sums have room next to a row */
    const int64_t width = p->n_in, n_in = p->n_rows; /* each input multiplies a row */
    float *const row = slice;
    double *const sums = (double *)(void *)(slice + (width + 7) / 8 * 8);

    for (int64_t t = 0; t < p->n_tokens; t += MOST) {
        const int64_t n_now = p->n_tokens - t < MOST ? p->n_tokens - t : MOST;
        memset(sums, 0, (size_t)(n_now * width) * sizeof *sums);
        for (int64_t i = 0; i < n_in; i++) {
            apr_decode_rows(p->weight, p->first + i, 1, row);
            for (int64_t k = 0; k < n_now; k++) {
                const double x = (double)p->x[(t + k) * p->x_stride + i];
                for (int64_t c = 0; c < width; c++) sums[k * width + c] += x * (double)row[c];
            }
        }
        for (int64_t k = 0; k < n_now; k++)
            for (int64_t c = 0; c < width; c++) p->out[(t + k) * p->out_stride + c] = (float)sums[k * width + c];
    }
}

static void multiply_heads(const apr_linear_args *a)
{
#pragma omp parallel for schedule(dynamic, 1) num_threads(apr_threads(a->work.n_threads, a->heads.n, apr_host_linear_cost(a)))
    for (int64_t head = 0; head < a->heads.n; head++) {
        float *const slice = a->work.data + apr_host_slice(&a->work);
        const product p = {.weight = a->weight,
                           .x = a->x + head * a->n_in,
                           .out = a->out + head * a->n_out,
                           .first = apr_linear_first_row(a, head),
                           .n_rows = apr_linear_head_rows(a),
                           .n_in = a->heads.transposed ? a->n_out : a->n_in, /* numbers of a row */
                           .n_tokens = a->n_tokens,
                           .x_stride = a->heads.n * a->n_in,
                           .out_stride = a->heads.n * a->n_out};
        if (a->heads.transposed) multiply_transposed(&p, slice);
        else multiply_rows(&p, 0, p.n_rows, slice, a->work.slice);
    }
}

static void linear_of(const apr_linear_args *a)
{
    const product p = {.weight = a->weight,
                       .bias = a->bias,
                       .x = a->x,
                       .out = a->out,
                       .n_rows = a->n_out,
                       .n_in = a->n_in,
                       .n_tokens = a->n_tokens,
                       .x_stride = a->n_in,
                       .out_stride = a->n_out};
    const int64_t n_blocks = (a->n_out + ROWS - 1) / ROWS;
    enum { MOST_ROWS = 64 };

    if (a->heads.n > 0) {
        multiply_heads(a);
        return;
    }
    /* shares of at most MOST_ROWS rows: each converts the inputs once, and a thread that is slowed down takes fewer */
    const int n_threads = apr_threads(a->work.n_threads, n_blocks, apr_host_linear_cost(a));
    const int64_t even = (n_blocks + 4 * n_threads - 1) / (4 * n_threads) * ROWS, share = even < MOST_ROWS ? even : MOST_ROWS;
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t row = 0; row < a->n_out; row += share)
        multiply_rows(&p, row, a->n_out - row < share ? a->n_out - row : share, a->work.data + apr_host_slice(&a->work), a->work.slice);
}

void apr_float64_linears(const apr_linear_args *const each[], int n)
{
    for (int i = 0; i < n; i++) linear_of(each[i]);
}

void apr_float64_linear(const apr_op_args *args) { linear_of(&args->linear); }

/* ---- attention: a thread takes one query head of one token, and passes over its keys and values once (online softmax) ---- */

static const uint8_t *cell_of(const apr_attend_args *a, const apr_cache *cache, int64_t at, int64_t kv_head)
{
    return cache->data + (apr_attend_cell(a, cache, at) * a->n_kv_heads + kv_head) * cache->row_bytes;
}

LANES_INLINE void attend_body(const lanes_shape shape, const apr_attend_args *a, int64_t row, float *decoded)
{
    const int64_t last = a->position + row / a->n_heads, head = row % a->n_heads, kv_head = head / (a->n_heads / a->n_kv_heads);
    const float *const q = a->q + row * a->key_dim;
    const int64_t longest = a->key_dim > a->value_dim ? a->key_dim : a->value_dim;
    double *const out = (double *)(void *)(decoded + (longest + 1) / 2 * 2);
    double largest = a->sinks != NULL ? (double)a->sinks[head] : -INFINITY, sum = a->sinks != NULL ? 1.0 : 0.0;

    for (int64_t d = 0; d < a->value_dim; d++) out[d] = 0.0;
    for (int64_t p = apr_attend_first(a, last); p <= last; p++) {
        apr_host_codecs()[a->keys.dtype].decode(cell_of(a, &a->keys, p, kv_head), decoded, a->key_dim);
        double score = lanes_dot_f64(shape, q, decoded, a->key_dim) * (double)a->scale;
        if (a->softcap > 0.0f) score = (double)a->softcap * tanh(score / (double)a->softcap);
        if (score > largest) {
            const double shrink = exp(largest - score);
            sum *= shrink;
            for (int64_t d = 0; d < a->value_dim; d++) out[d] *= shrink;
            largest = score;
        }
        const double weight = exp(score - largest);
        sum += weight;
        apr_host_codecs()[a->values.dtype].decode(cell_of(a, &a->values, p, kv_head), decoded, a->value_dim);
        lanes_add_scaled_f64(shape, out, weight, decoded, a->value_dim);
    }
    for (int64_t d = 0; d < a->value_dim; d++) a->out[row * a->value_dim + d] = (float)(out[d] / sum);
}

LANES_CLONES(attend_row, attend_body, (const apr_attend_args *a, int64_t row, float *decoded), a, row, decoded)

static void attend(const apr_attend_args *a)
{
    const int64_t n_rows = a->n_tokens * a->n_heads;
    const double steps = (double)n_rows * (double)(a->position + a->n_tokens) * (double)(a->key_dim + a->value_dim);

#pragma omp parallel for schedule(dynamic, 1) num_threads(apr_threads(a->work.n_threads, n_rows, steps))
    for (int64_t row = 0; row < n_rows; row++) attend_row(a, row, a->work.data + apr_host_slice(&a->work));
}

void apr_float64_attend(const apr_op_args *args) { apr_host_attend_chosen(&args->attend, attend); }

/* ---- norms and recurrent layers ---- */

void apr_float64_norm(const apr_op_args *args)
{
    const apr_norm_args *const a = &args->norm;
    for (int64_t begin = 0; begin < a->n_tokens * a->width; begin += a->chunk) {
        const float *const x = a->x + begin;
        const int64_t of_weight = begin % a->n_weight;
        double mean = 0.0, sum = 0.0;
        for (int64_t i = 0; i < a->chunk && a->kind == APR_NORM_LAYER; i++) mean += (double)x[i] / (double)a->chunk;
        for (int64_t i = 0; i < a->chunk; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
        const double scale = 1.0 / sqrt((a->kind == APR_NORM_L2 ? sum : sum / (double)a->chunk) + (double)a->eps);
        for (int64_t i = 0; i < a->chunk; i++) {
            const double normed = ((double)x[i] - mean) * scale, offset = (double)a->offset;
            const double weighed = a->weight != NULL ? normed * ((double)a->weight[of_weight + i] + offset) : normed;
            a->out[begin + i] = (float)(a->bias != NULL ? weighed + (double)a->bias[of_weight + i] : weighed);
        }
    }
}

static double mean_square(const float *x, double mean, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return sum / (double)n;
}

void apr_float64_rescale(const apr_op_args *args)
{
    const apr_rescale_args *const a = &args->rescale;
    for (int64_t at = 0; at < a->n_tokens * a->width; at += a->width) {
        const double square = fmax(mean_square(a->x + at, 0.0, a->width), (double)a->floor);
        const double factor = sqrt(mean_square(a->like + at, 0.0, a->width) / square);
        for (int64_t i = at; i < at + a->width; i++) a->out[i] = (float)((double)a->x[i] * factor);
    }
}

void apr_float64_gauss_topk(const apr_op_args *args)
{
    const apr_gauss_topk_args *const a = &args->gauss_topk;
    for (int64_t at = 0; at < a->n_tokens * a->width; at += a->width) {
        double mean = 0.0;
        for (int64_t i = at; i < at + a->width; i++) mean += (double)a->x[i] / (double)a->width;
        const double least = mean + (double)a->factor * sqrt(mean_square(a->x + at, mean, a->width));
        for (int64_t i = at; i < at + a->width; i++) a->out[i] = (float)fmax(0.0, (double)a->x[i] - least);
    }
}

/* The states are float32, token by token as in kernels/ref; heads are independent. */
void apr_float64_delta(const apr_op_args *args)
{
    const apr_delta_args *const a = &args->delta;
    const double steps = (double)(a->n_tokens * a->n_value_heads) * 3.0 * (double)(a->key_dim * a->value_dim);
#pragma omp parallel for schedule(dynamic, 1) num_threads(apr_threads(a->work.n_threads, a->n_value_heads, steps))
    for (int64_t head = 0; head < a->n_value_heads; head++) apr_ref_delta_head(a, head, a->work.data + apr_host_slice(&a->work));
}

void apr_float64_ssd(const apr_op_args *args)
{
    const apr_ssd_args *const a = &args->ssd;
    const double steps = (double)(a->n_tokens * a->n_heads) * 3.0 * (double)(a->head_dim * a->state_dim);
#pragma omp parallel for schedule(dynamic, 1) num_threads(apr_threads(a->n_threads, a->n_heads, steps))
    for (int64_t head = 0; head < a->n_heads; head++) apr_ref_ssd_head(a, head);
}
