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

/* ---- attention ----
 *
 * A thread takes some rows of a key/value head (a row is one query head of one token) and passes over the cells that they attend to, a tile
 * at a time, which is decoded once for all of them. A row's score, weight and sums (online softmax) follow one another cell by cell, so its
 * numbers do not depend on the rows or tiles that it shares. */

enum { TILE_CELLS = 16, TILE_ROWS = 16 };

/* Rows [row, row + n_rows) of a key/value head: row r is token r / group, head kv_head * group + r % group. All in float64. */
typedef struct attending {
    const apr_attend_args *a;
    int64_t kv_head, group, row, n_rows;
    double *keys, *values;  /* [TILE_CELLS, key_dim], [TILE_CELLS, value_dim] */
    double *queries, *sums; /* [TILE_ROWS, key_dim], [TILE_ROWS, value_dim] */
    double *scores;         /* [TILE_ROWS, TILE_CELLS] */
    double *largest, *totals;
    float *decoded; /* [key_dim or value_dim] */
} attending;

static int64_t head_of(const attending *s, int64_t row) { return s->kv_head * s->group + (s->row + row) % s->group; }
static int64_t token_of(const attending *s, int64_t row) { return (s->row + row) / s->group; }

LANES_INLINE void decode_tile(const attending *s, const apr_cache *cache, int64_t position, int64_t n_cells, int64_t dim, double *to)
{
    for (int64_t c = 0; c < n_cells; c++) {
        const int64_t cell = apr_attend_cell(s->a, cache, position + c);
        apr_host_codecs()[cache->dtype].decode(cache->data + (cell * s->a->n_kv_heads + s->kv_head) * cache->row_bytes, s->decoded, dim);
        widen(s->decoded, dim, dim, to + c * dim);
    }
}

/* The scores of up to four rows with up to four cells; both numbers are compile-time constants. */
LANES_INLINE void score_some(const lanes_shape shape, const int n_cells, const int n_rows, const attending *s, int64_t row, int64_t cell)
{
    const apr_attend_args *const a = s->a;
    const int64_t dim = a->key_dim, whole = dim / 8 * 8;
    const double *const keys = s->keys + cell * dim, *const queries = s->queries + row * dim;
    double sums[4][4][8];

    memset(sums, 0, sizeof sums);
    lanes_add_f64(shape, n_cells, n_rows, keys, queries, dim, whole, sums[0][0], 4 * 8);
    for (int c = 0; c < n_cells; c++)
        for (int r = 0; r < n_rows; r++) {
            double tail = 0.0;
            for (int64_t i = whole; i < dim; i++) tail += queries[r * dim + i] * keys[c * dim + i];
            const double score = (sum_of_eight(sums[c][r]) + tail) * (double)a->scale;
            s->scores[(row + r) * TILE_CELLS + cell + c] =
                a->softcap > 0.0f ? (double)a->softcap * tanh(score / (double)a->softcap) : score;
        }
}

LANES_INLINE void score_rows(const lanes_shape shape, const int n_rows, const attending *s, int64_t row, int64_t n_cells)
{
    const int tile = shape.bytes == 64 ? 4 : 2;
    int64_t c = 0;

    for (; c + tile <= n_cells; c += tile) score_some(shape, tile, n_rows, s, row, c);
    for (; c < n_cells; c++) score_some(shape, 1, n_rows, s, row, c);
}

/* Adds the cells [begin, end) of a tile to a row's sums. Its scores become weights. */
LANES_INLINE void add_cells(const lanes_shape shape, const attending *s, int64_t row, int64_t begin, int64_t end)
{
    const int64_t dim = s->a->value_dim;
    double *const scores = s->scores + row * TILE_CELLS, *const sums = s->sums + row * dim;
    int64_t from = begin; /* cells before it are in the sums */

    for (int64_t c = begin; c < end; c++) {
        if (scores[c] > s->largest[row]) {
            const double shrink = exp(s->largest[row] - scores[c]);
            lanes_add_rows_f64(shape, sums, scores + from, s->values + from * dim, c - from, dim);
            for (int64_t d = 0; d < dim; d++) sums[d] *= shrink;
            s->totals[row] *= shrink;
            s->largest[row] = scores[c];
            from = c;
        }
        scores[c] = exp(scores[c] - s->largest[row]);
        s->totals[row] += scores[c];
    }
    lanes_add_rows_f64(shape, sums, scores + from, s->values + from * dim, end - from, dim);
}

LANES_INLINE void attend_tile(const lanes_shape shape, const attending *s, int64_t p, int64_t n_cells)
{
    const apr_attend_args *const a = s->a;
    int64_t row = 0;

    decode_tile(s, &a->keys, p, n_cells, a->key_dim, s->keys);
    decode_tile(s, &a->values, p, n_cells, a->value_dim, s->values);
    for (; row + 4 <= s->n_rows; row += 4) score_rows(shape, 4, s, row, n_cells);
    for (; row < s->n_rows; row++) score_rows(shape, 1, s, row, n_cells);
    for (row = 0; row < s->n_rows; row++) {
        const int64_t own = a->position + token_of(s, row), oldest = apr_attend_first(a, own);
        const int64_t begin = oldest > p ? oldest - p : 0, end = own - p + 1 < n_cells ? own - p + 1 : n_cells;
        if (begin < end) add_cells(shape, s, row, begin, end);
    }
}

LANES_INLINE void attend_body(const lanes_shape shape, const attending *s)
{
    const apr_attend_args *const a = s->a;
    const int64_t first = apr_attend_first(a, a->position + token_of(s, 0)), end = a->position + token_of(s, s->n_rows - 1) + 1;

    for (int64_t i = 0; i < s->n_rows * a->value_dim; i++) s->sums[i] = 0.0;
    for (int64_t row = 0; row < s->n_rows; row++) { /* a sink is a first score without a value */
        s->largest[row] = a->sinks != NULL ? (double)a->sinks[head_of(s, row)] : -INFINITY;
        s->totals[row] = a->sinks != NULL ? 1.0 : 0.0;
        widen(a->q + (token_of(s, row) * a->n_heads + head_of(s, row)) * a->key_dim, a->key_dim, a->key_dim, s->queries + row * a->key_dim);
    }
    for (int64_t p = first; p < end; p += TILE_CELLS) attend_tile(shape, s, p, end - p < TILE_CELLS ? end - p : TILE_CELLS);
    for (int64_t row = 0; row < s->n_rows; row++) {
        float *const out = a->out + (token_of(s, row) * a->n_heads + head_of(s, row)) * a->value_dim;
        for (int64_t d = 0; d < a->value_dim; d++) out[d] = (float)(s->sums[row * a->value_dim + d] / s->totals[row]);
    }
}

LANES_CLONES(attend_rows, attend_body, (const attending *s), s)

/* The buffers, in a thread's slice: 64 key_dim + 64 value_dim floats and a few, of apr_attend_slice. */
static void place(attending *s, float *slice)
{
    const apr_attend_args *const a = s->a;

    s->keys = (double *)(void *)slice;
    s->values = s->keys + TILE_CELLS * a->key_dim;
    s->queries = s->values + TILE_CELLS * a->value_dim;
    s->sums = s->queries + TILE_ROWS * a->key_dim;
    s->scores = s->sums + TILE_ROWS * a->value_dim;
    s->largest = s->scores + TILE_ROWS * TILE_CELLS;
    s->totals = s->largest + TILE_ROWS;
    s->decoded = (float *)(void *)(s->totals + TILE_ROWS);
}

static void attend(const apr_attend_args *a)
{
    const int64_t group = a->n_heads / a->n_kv_heads, n_rows = a->n_tokens * group;
    const double steps = (double)(a->n_tokens * a->n_heads) * (double)(a->position + a->n_tokens) * (double)(a->key_dim + a->value_dim);
    /* two shares for a thread, or more if they would have too many rows */
    const int n_threads = apr_threads(a->work.n_threads, a->n_tokens * a->n_heads, steps);
    const int64_t even = (a->n_tokens * a->n_heads + 2 * n_threads - 1) / (2 * n_threads), share = even < TILE_ROWS ? even : TILE_ROWS;
    const int64_t n_shares = (n_rows + share - 1) / share;

#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t i = 0; i < n_shares * a->n_kv_heads; i++) {
        const int64_t row = i / a->n_kv_heads * share;
        attending s = {
            .a = a, .kv_head = i % a->n_kv_heads, .group = group, .row = row, .n_rows = n_rows - row < share ? n_rows - row : share};
        place(&s, a->work.data + apr_host_slice(&a->work));
        attend_rows(&s);
    }
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
