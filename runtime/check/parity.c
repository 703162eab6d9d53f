/* parity.c - runs two sessions in lockstep and compares the output of each operation on the same input. */
#include "runtime/check/parity.h"
#include "formats/base/crc32.h"
#include "formats/base/random.h"
#include "formats/base/threads.h"
#include "runtime/check/program_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- differences --- */

static apr_difference not_finite(apr_difference d, int64_t at)
{
    d.cosine = d.largest = d.peak = d.relative = NAN;
    d.largest_at = at;
    d.finite = false;
    return d;
}

/* The sums of one row. */
typedef struct row_sums {
    double sq_reference, sq_other, sq_error, dot, largest;
    int64_t largest_at, nonfinite_at; /* in the row; -1: every number is finite */
} row_sums;

static row_sums sum_row(const float *reference, const float *other, int64_t width)
{
    row_sums s = {.nonfinite_at = -1};
    for (int64_t i = 0; i < width; i++) {
        const double a = (double)reference[i], b = (double)other[i], error = fabs(a - b);
        if (!isfinite(a) || !isfinite(b)) {
            s.nonfinite_at = i;
            return s;
        }
        s.sq_reference += a * a;
        s.sq_other += b * b;
        s.sq_error += error * error;
        s.dot += a * b;
        if (error > s.largest) s.largest = error, s.largest_at = i;
    }
    return s;
}

/* Rows that are summed side by side; they are added in order, so that threads do not change the sums. */
enum { ROWS_AT_ONCE = 64 };

apr_difference apr_difference_of(const float *reference, const float *other, int64_t n_rows, int64_t width)
{
    const size_t n_bytes = (size_t)(n_rows * width) * sizeof *reference;
    apr_difference d = {.finite = true, .crc_reference = apr_crc32(0, reference, n_bytes), .crc_other = apr_crc32(0, other, n_bytes)};
    double sq_reference = 0.0, sq_other = 0.0, sq_error = 0.0, dot = 0.0;

    for (int64_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        const int64_t n = n_rows - first < ROWS_AT_ONCE ? n_rows - first : ROWS_AT_ONCE;
        row_sums rows[ROWS_AT_ONCE];
#pragma omp parallel for schedule(static) num_threads(apr_threads(apr_all_threads(), n, (double)n *(double)width *APR_OPS_EXP))
        for (int64_t r = 0; r < n; r++) rows[r] = sum_row(reference + (first + r) * width, other + (first + r) * width, width);
        for (int64_t r = 0; r < n; r++) {
            const row_sums *const s = &rows[r];
            if (s->nonfinite_at >= 0) return not_finite(d, (first + r) * width + s->nonfinite_at);
            sq_reference += s->sq_reference, sq_other += s->sq_other, sq_error += s->sq_error, dot += s->dot;
            if (s->largest > d.largest) d.largest = s->largest, d.largest_at = (first + r) * width + s->largest_at;
            if (s->largest > 0.0) d.peak = fmax(d.peak, s->largest / sqrt(s->sq_reference / (double)width)); /* inf: a row of zeros */
        }
    }
    if (sq_error == 0.0) d.cosine = 1.0;
    else d.cosine = sq_reference > 0.0 && sq_other > 0.0 ? dot / sqrt(sq_reference * sq_other) : 0.0;
    d.relative = sq_error > 0.0 ? sqrt(sq_error / sq_reference) : 0.0;
    return d;
}

/* --- bounds --- */

/* The bound that the operation's card states for two backends. fp16_products: the GEMM uses FP16 inputs and weights with float32
 * accumulation (tensor cores). Measured between the ref and host backends: see the test. The cards add a factor of ten, because wider
 * models have longer sums. */
static apr_parity_bound backend_bound(apr_op_kind kind, bool fp16_products)
{
    const apr_op_spec *const spec = apr_op_specs[kind];
    return fp16_products && spec->fp16_bound.reason != NULL ? spec->fp16_bound : spec->bound;
}

/* Bounds relative to the largest logit. Weights in 16 bits are exact on both sides, so only the order of sums and the roundings below
 * differ. The recorded reference itself is float32 sums in a third order. */
static const apr_run_bound run_bounds[] = {
    [APR_RUNS_ON_REF] = {5e-5, "float32 sums, one after the other"},
    [APR_RUNS_ON_HOST] = {2e-4, "float32 sums in another order"},
    [APR_RUNS_ON_DEVICE] = {2e-4, "float32 sums in another order"},
};
/* FP16 rounds an input of a matrix product by at most 2^-12 of itself, 2^-12 / sqrt(3) on average. The errors of the seven products of a
 * layer are independent and grow like a square root. The worst of thousands of numbers has four times the average error. Measured: 3e-3
 * after four layers with random weights, 5e-4 with trained ones. The bound is twice the larger. */
static const apr_run_bound run_fp16 = {6e-3, "matrix products of many tokens round their inputs to FP16 (2^-12)"};
/* Single tokens (decode GEMV). Measured: 5e-5 after a few layers with random weights, 5.2e-4 after 32 layers of an 8B model's width.
 * The bound is four times the larger. With exact products, the bound of float32 sums applies instead. */
static const apr_run_bound run_i16 = {2e-3, "matrix products round their inputs to 15 bits, relative to the largest of 16 (2^-16)"};
/* Other roundings: twice what was measured with random weights (1.8e-3 for FP16 caches, 0.14 for FP8 caches). */
static const apr_run_bound run_fp8 = {0.3, "matrix products round their inputs to FP8 (2^-4)"};
static const struct {
    apr_dtype dtype;
    apr_run_bound bound;
} run_kv[] = {
    {APR_F16, {4e-3, "keys and values are stored in FP16 (2^-12)"}},
    {APR_Q8_0, {4e-2, "keys and values are stored in 8 bits (1/254 of a block's largest)"}},
    {APR_F8_E4M3, {0.3, "keys and values are stored in FP8 (2^-4)"}},
};

apr_run_bound apr_run_bound_of(apr_run_facts facts)
{
    apr_run_bound bound = run_bounds[facts.on];

    if (facts.fp16_products && run_fp16.relative > bound.relative) bound = run_fp16;
    for (size_t i = 0; i < sizeof run_kv / sizeof *run_kv; i++)
        if (run_kv[i].dtype == facts.kv_dtype && run_kv[i].bound.relative > bound.relative) bound = run_kv[i].bound;
    if (facts.i16_products && run_i16.relative > bound.relative) bound = run_i16;
    if (facts.fp8_products && run_fp8.relative > bound.relative) bound = run_fp8;
    return bound;
}

/* Measured: 0.3 % to 1 % of the bound of logits. */
double apr_run_perplexity_bound(apr_run_facts facts) { return fmax(5e-4, apr_run_bound_of(facts).relative / 20.0); }

/* Two backends' routing scores of the same logits differ by a few units in the last place: see apr_route_gap. */
static const double route_tie = 1e-5;

/* Rows first, first + stride, ... of a matrix; stride 1: all. */
typedef struct row_sample {
    int64_t first, stride, n;
} row_sample;

typedef struct parity {
    apr_session *reference, *other;
    const apr_program *program; /* of the reference */
    const apr_parity_options *options;
    apr_parity_result *result;
    apr_error *err;
    const int32_t *ids; /* [n_ctx] */
    int64_t n_batch;    /* the smaller of the options' and of what both sessions take */
    size_t batch, n_batches;
    int64_t position, n_tokens;
    float *rows[2];                  /* output of the operation: reference, other */
    float *input;                    /* its input */
    uint8_t *cells[2];               /* KV cells it stored */
    double n_multiplied, n_repeated; /* multiplications of products, and those of the reference */
    row_sample sample;               /* of the operation that is compared */
    float *held;                     /* the sampled numbers of the reference: [n_tokens, sample.n] */
} parity;

/* The expected output error of a linear operation from the difference of the two matrices. If the errors of the columns are independent,
 * the squared error is the sum over columns of x_j^2 times the column's squared error. If all weights shrank alike, it is the relative
 * error of the matrix. The bound is three times the sum of both. */
static double linear_error(const parity *p, const apr_weight_pair *pair, const apr_parity_record *r)
{
    const int64_t columns = apr_tensor_columns(pair->other);
    double sq_error = 0.0, sq_out = 0.0;

    for (int64_t t = 0; t < p->n_tokens; t++)
        for (int64_t j = 0; j < columns; j++) {
            const double x = (double)p->input[t * columns + j];
            sq_error += x * x * pair->column_errors[j];
        }
    for (int64_t i = 0; i < r->n_rows * r->width; i++) sq_out += (double)r->reference[i] * (double)r->reference[i];
    return sq_out > 0.0 ? 3.0 * (sqrt(sq_error / sq_out) + pair->scan.relative) : INFINITY;
}

/* The allowed error from a weight's difference depends on the operation. Rows that are looked up (embeddings) differ by their own error. */
static double weight_error(const parity *p, const apr_weight_pair *pair, const apr_parity_record *r)
{
    const apr_weight_use use = apr_op_specs[r->op->kind]->weights[0].use;
    if (r->op->kind == APR_OP_LINEAR && r->op->args.linear.heads.n == 0) return linear_error(p, pair, r);
    return use == APR_USE_ROWS ? 1.5 * pair->scan.worst_row : 0.0;
}

/* The pair of weight `which` of operation `op`, or NULL. Of experts it is the first; the others follow it. */
static const apr_weight_pair *pair_of(const apr_weights *w, size_t op, int which)
{
    const int64_t pair = w->pair_of[op * APR_OP_MAX_WEIGHTS + (size_t)which];
    return pair >= 0 ? &w->pairs[pair] : NULL;
}

/* The relative error of a weight; of experts, the largest. 0: neither model has it. */
static double relative_error(const apr_weights *w, size_t op, int which)
{
    const apr_weight_pair *const first = pair_of(w, op, which);
    double largest = 0.0;
    for (int64_t i = 0; first != NULL && i < first->n_parts; i++) largest = fmax(largest, first[i].scan.relative);
    return largest;
}

/* Operations with several weights: each weight is a factor of the output, so their relative errors add up. The margin is ten, because a
 * small number of one weight may meet a large one of another. For experts a margin of three is enough: they sum many products of three
 * similar factors. (Measured on rows of 32 numbers in blocks of 4 to 8 bits, the shortest sums: up to 1.8 times.) */
static double factors_error(const parity *p, const apr_parity_record *r)
{
    const double margin = r->op->kind == APR_OP_EXPERTS ? 3.0 : 10.0;
    double sum = 0.0;
    for (int i = 0; i < APR_OP_MAX_WEIGHTS; i++) sum += relative_error(p->options->weights, r->op_index, i);
    return margin * sum;
}

/* The bound for two models: the difference of their weights limits the relative error of the output; single numbers are not limited. */
static apr_parity_bound model_bound(const parity *p, const apr_parity_record *r, apr_parity_bound backend)
{
    const apr_weight_pair *const pair = pair_of(p->options->weights, r->op_index, 0);
    const double same = fmax(backend.relative, 1e-6), factors = factors_error(p, r);

    const double parameters = apr_op_specs[r->op->kind]->position_error * (double)(p->position + p->n_tokens);

    const double own = pair != NULL && pair->scan.relative > 0.0 ? weight_error(p, pair, r) : 0.0;
    if (pair == NULL) return (apr_parity_bound){INFINITY, same + parameters, backend.reason};
    if (factors == 0.0) return (apr_parity_bound){INFINITY, same, "the weights are equal"};
    return (apr_parity_bound){INFINITY, same + (own > 0.0 ? own : factors), "difference of the weights, for this input"};
}

static apr_parity_bound bound_of(const parity *p, const apr_parity_record *r)
{
    const apr_parity_bound backend = backend_bound(r->op->kind, p->n_tokens > p->options->fp16_above);
    return p->options->weights == NULL ? backend : model_bound(p, r, backend);
}

/* --- one operation --- */

static bool is_asked(const parity *p, const apr_op *op)
{
    const apr_parity_options *const o = p->options;
    if (o->layer != APR_PARITY_ALL_LAYERS && o->layer != op->layer) return false;
    if (o->op == NULL || strcmp(o->op, apr_op_name(op->kind)) == 0) return true;
    if (op->out < 0) return false;
    const char *const name = p->program->values[op->out].name;
    const size_t n_name = strlen(name), n_asked = strlen(o->op); /* the whole name, or its end after a dot */
    return n_name >= n_asked && strcmp(name + n_name - n_asked, o->op) == 0 && (n_name == n_asked || name[n_name - n_asked - 1] == '.');
}

static void add_record(parity *p, const apr_parity_record *r)
{
    apr_parity_result *const result = p->result;
    const int64_t layer = r->op->layer >= 0 ? r->op->layer : result->n_layers;
    const apr_difference *const d = &r->difference;

    result->n_checked++;
    result->n_passed += r->passed;
    result->worst_peak[layer] = d->finite ? fmax(result->worst_peak[layer], d->peak) : INFINITY;
    result->worst_relative[layer] = d->finite ? fmax(result->worst_relative[layer], d->relative) : INFINITY;
    if (r->passed || result->failed) return;
    result->failed = true;
    result->first.kind = r->op->kind;
    result->first.layer = r->op->layer;
    snprintf(result->first.name, sizeof result->first.name, "%s", r->name);
    result->first.position = r->position;
    result->first.n_tokens = r->n_tokens;
    result->first.difference = *d;
    result->first.bound = r->bound;
}

/* The routing weight of an expert in a row [ids, weights, gap]; 0: the expert was not chosen. */
static float weight_in(const float *row, int64_t n, float expert)
{
    for (int64_t j = 0; j < n; j++)
        if (row[j] == expert) return row[n + j];
    return 0.0f;
}

static bool is_chosen(const float *row, int64_t n, float expert)
{
    for (int64_t j = 0; j < n; j++)
        if (row[j] == expert) return true;
    return false;
}

/* The difference of expert choices. Expert ids are not quantities, so the weights of each chosen expert are compared. If the choices
 * differ and the gap is at most `tie`, rounding may have swapped two experts; such a row counts as equal. */
static apr_difference choice_difference(const parity *p, int64_t n_rows, int64_t width, double tie)
{
    const int64_t n = (width - 1) / 2;
    float *const own = malloc(2 * (size_t)(n_rows * n) * sizeof *own + 1);

    if (own == NULL) return not_finite((apr_difference){0}, 0);
    float *const others = own + n_rows * n;
    for (int64_t row = 0; row < n_rows; row++) {
        const float *const a = p->rows[0] + row * width, *const b = p->rows[1] + row * width;
        bool same = true;
        for (int64_t i = 0; i < n; i++) same &= is_chosen(b, n, a[i]);
        const float *const held = same || (double)a[2 * n] > tie ? b : a;
        for (int64_t i = 0; i < n; i++) {
            own[row * n + i] = a[n + i];
            others[row * n + i] = weight_in(held, n, a[i]);
        }
    }
    const apr_difference d = apr_difference_of(own, others, n_rows, n);
    free(own);
    return d;
}

/* The difference of chosen positions, by the same rule. A row is [positions, gap]. */
static apr_difference index_difference(const parity *p, int64_t n_rows, int64_t width, double tie)
{
    const int64_t n = width - 1;
    float *const own = malloc(2 * (size_t)(n_rows * n) * sizeof *own + 1);

    if (own == NULL) return not_finite((apr_difference){0}, 0);
    float *const others = own + n_rows * n;
    for (int64_t row = 0; row < n_rows; row++) {
        const float *const a = p->rows[0] + row * width, *const b = p->rows[1] + row * width;
        memcpy(own + row * n, a, (size_t)n * sizeof *own);
        memcpy(others + row * n, (double)a[n] > tie ? b : a, (size_t)n * sizeof *own);
    }
    const apr_difference d = apr_difference_of(own, others, n_rows, n);
    free(own);
    return d;
}

/* The difference of the sampled numbers. All numbers of the other backend must be finite. */
static apr_difference sample_difference(const parity *p, int64_t n_rows, int64_t width)
{
    const row_sample *const s = &p->sample;
    float *const others = malloc((size_t)(n_rows * s->n) * sizeof *others + 1);

    if (others == NULL) return not_finite((apr_difference){0}, 0);
    for (int64_t t = 0; t < n_rows; t++)
        for (int64_t i = 0; i < s->n; i++) others[t * s->n + i] = p->rows[1][t * width + s->first + i * s->stride];
    apr_difference d = apr_difference_of(p->held, others, n_rows, s->n);
    free(others);
    d.largest_at = d.largest_at / s->n * width + s->first + d.largest_at % s->n * s->stride;
    for (int64_t i = 0; d.finite && i < n_rows * width; i++)
        if (!isfinite(p->rows[1][i])) d = not_finite(d, i);
    return d;
}

static apr_difference difference_of(const parity *p, apr_op_kind kind, int64_t n_rows, int64_t width, double tie)
{
    if (kind == APR_OP_ROUTE) return choice_difference(p, n_rows, width, tie);
    if (kind == APR_OP_INDEX) return index_difference(p, n_rows, width, tie);
    if (p->sample.stride > 1) return sample_difference(p, n_rows, width);
    return apr_difference_of(p->rows[0], p->rows[1], n_rows, width);
}

/* --- sums whose terms cancel ---
 *
 * The errors of a sum are in proportion to its terms, not to what is left of them. Over many outputs both are alike, but a product of one
 * output (the gate of a shared expert), or of a few, can be a thousandth of its terms. Such a row is held to the size of its terms,
 *
 *     sum_i sum_j (w_ij x_j)^2,    what the squared outputs are on average if the terms are independent,
 *
 * where that is larger. It needs every weight once more, so it is computed only for what is outside its bound otherwise. */

static bool is_plain_product(const apr_op *op) { return op->kind == APR_OP_LINEAR && op->args.linear.heads.n == 0; }

/* Into squares[n_tokens]. */
static apr_status sum_terms(const parity *p, const apr_tensor *matrix, int64_t n_out, double *squares)
{
    const int64_t n_in = apr_tensor_columns(matrix);
    float *const row = malloc((size_t)n_in * sizeof *row + 1);

    if (row == NULL) return apr_no_memory(p->err, "a row of a matrix");
    memset(squares, 0, (size_t)p->n_tokens * sizeof *squares);
    for (int64_t i = 0; i < n_out; i++) {
        apr_decode_rows(matrix, i, 1, row);
        for (int64_t t = 0; t < p->n_tokens; t++)
            for (int64_t j = 0; j < n_in; j++) {
                const double term = (double)row[j] * (double)p->input[t * n_in + j];
                squares[t] += term * term;
            }
    }
    free(row);
    return APR_OK;
}

/* Gives the record's difference relative to the terms of each row. */
static apr_status relate_to_terms(const parity *p, apr_parity_record *r)
{
    double *const squares = malloc((size_t)p->n_tokens * sizeof *squares + 1), sq_error = 0.0, sq_size = 0.0, peak = 0.0;
    const apr_tensor *const matrix = apr_trace_tensor(p->reference, r->op->weight[0]);
    const apr_status status = squares != NULL ? sum_terms(p, matrix, r->width, squares) : apr_no_memory(p->err, "the sizes of terms");

    for (int64_t t = 0; t < r->n_rows && status == APR_OK; t++) {
        const row_sums s = sum_row(r->reference + t * r->width, r->other + t * r->width, r->width);
        const double size = fmax(s.sq_reference, squares[t]);
        sq_error += s.sq_error;
        sq_size += size;
        if (s.largest > 0.0) peak = fmax(peak, s.largest / sqrt(size / (double)r->width));
    }
    if (status == APR_OK && sq_error > 0.0) {
        r->difference.peak = peak;
        r->difference.relative = sqrt(sq_error / sq_size);
    }
    free(squares);
    return status;
}

static bool is_within(const apr_parity_record *r)
{
    return r->difference.finite && r->difference.peak <= r->bound.peak && r->difference.relative <= r->bound.relative;
}

static apr_status check_output(parity *p, size_t index, int64_t n_rows, int64_t width)
{
    const apr_op *const op = &p->program->ops[index];
    apr_parity_record r = {.op = op,
                           .op_index = index,
                           .position = p->position,
                           .n_tokens = p->n_tokens,
                           .batch = p->batch,
                           .n_batches = p->n_batches,
                           .n_rows = n_rows,
                           .width = width};

    /* weight slots belong to each program: an optional weight may be absent in one of them */
    r.weight = apr_trace_tensor(p->other, apr_session_program(p->other)->ops[index].weight[0]);
    r.name = r.weight != NULL ? r.weight->name : op->out >= 0 ? p->program->values[op->out].name : apr_op_name(op->kind);
    r.reference = p->rows[0];
    r.other = p->rows[1];
    const double tie = route_tie + (p->options->weights != NULL ? factors_error(p, &r) : 0.0); /* a bias may differ */
    r.difference = difference_of(p, op->kind, n_rows, width, tie);
    r.bound = bound_of(p, &r);
    r.passed = is_within(&r);
    if (!r.passed && r.difference.finite && is_plain_product(op) && p->options->weights == NULL && p->sample.stride == 1) {
        APR_TRY(relate_to_terms(p, &r));
        r.passed = is_within(&r);
    }
    add_record(p, &r);
    return p->options->on_record != NULL ? p->options->on_record(p->options->user, &r, p->err) : APR_OK;
}

/* Copies a recurrent state from one session to the other. */
static apr_status copy_numbers(const parity *p, apr_session *from, apr_session *to, int state)
{
    float *const numbers = malloc((size_t)p->program->states[state].n_floats * sizeof *numbers + 1);
    apr_status status = numbers != NULL ? apr_trace_read_numbers(from, state, numbers, p->err) : apr_no_memory(p->err, "a state");
    if (status == APR_OK) status = apr_trace_write_numbers(to, state, numbers, p->err);
    free(numbers);
    return status;
}

/* --- products of which the reference computes some rows --- */

enum { SAMPLED_ROWS = 512, TOKENS_AT_ONCE = 32 };

/* The rows of this operation and position that are held to the reference. Several positions together cover more rows. */
static row_sample sample_of(const parity *p, size_t index)
{
    const apr_op *const op = &p->program->ops[index];
    const double share = p->options->sample;
    row_sample s = {.stride = 1};

    if (op->out < 0) return s;
    const int64_t width = p->program->values[op->out].width, most = width / SAMPLED_ROWS;
    if (is_plain_product(op) && p->options->weights == NULL && share > 0.0 && share < 1.0 && most > 1)
        s.stride = 1.0 / share < (double)most ? (int64_t)(1.0 / share) : most;
    uint64_t state = (uint64_t)index << 32 ^ (uint64_t)p->position;
    s.first = (int64_t)(apr_random(&state) % (uint64_t)s.stride);
    s.n = (width - s.first + s.stride - 1) / s.stride;
    return s;
}

/* One row times n tokens; x is [n_in, n]. */
static void multiply_row(const float *row, const double *x, int64_t n_in, int64_t n, double *sums)
{
    for (int64_t t = 0; t < n; t++) sums[t] = 0.0;
    for (int64_t c = 0; c < n_in; c++)
        for (int64_t t = 0; t < n; t++) sums[t] += (double)row[c] * x[c * n + t];
}

/* The sampled rows times tokens [first, first + n), in float64, into p->held. */
static apr_status multiply_sample(parity *p, const apr_tensor *matrix, const float *bias, int64_t first, int64_t n)
{
    const row_sample s = p->sample;
    const int64_t n_in = apr_tensor_columns(matrix);
    double *const x = malloc((size_t)(n_in * n) * sizeof *x + 1);
    bool failed = x == NULL;

    for (int64_t c = 0; x != NULL && c < n_in; c++)
        for (int64_t t = 0; t < n; t++) x[c * n + t] = (double)p->input[(first + t) * n_in + c];
#pragma omp parallel if (!failed)
    {
        float *const row = malloc((size_t)n_in * sizeof *row + 1);
        double sums[TOKENS_AT_ONCE];
#pragma omp atomic
        failed |= row == NULL;
#pragma omp for schedule(dynamic, 16)
        for (int64_t i = 0; i < s.n; i++) {
            if (row == NULL || x == NULL) continue;
            apr_decode_rows(matrix, s.first + i * s.stride, 1, row);
            multiply_row(row, x, n_in, n, sums);
            for (int64_t t = 0; t < n; t++)
                p->held[(first + t) * s.n + i] = (float)(sums[t] + (bias != NULL ? (double)bias[s.first + i * s.stride] : 0.0));
        }
        free(row);
    }
    free(x);
    return failed ? apr_no_memory(p->err, "rows of a matrix") : APR_OK;
}

static apr_status hold_sample(parity *p, const apr_op *op)
{
    const apr_tensor *const matrix = apr_trace_tensor(p->reference, op->weight[0]), *const offsets =
                                                                                        apr_trace_tensor(p->reference, op->weight[1]);
    float *const bias = offsets != NULL ? malloc((size_t)p->program->values[op->out].width * sizeof *bias) : NULL;
    apr_status status = offsets == NULL || bias != NULL ? APR_OK : apr_no_memory(p->err, "a bias");

    p->held = malloc((size_t)(p->n_tokens * p->sample.n) * sizeof *p->held + 1);
    if (p->held == NULL) status = apr_no_memory(p->err, "rows of a matrix");
    if (status == APR_OK && bias != NULL) apr_decode_rows(offsets, 0, 1, bias);
    for (int64_t t = 0; t < p->n_tokens && status == APR_OK; t += TOKENS_AT_ONCE)
        status = multiply_sample(p, matrix, bias, t, p->n_tokens - t < TOKENS_AT_ONCE ? p->n_tokens - t : TOKENS_AT_ONCE);
    free(bias);
    return status;
}

/* Runs the other backend; the reference gets its numbers, but its own of the sampled rows. */
static apr_status run_sampled(parity *p, size_t index)
{
    const apr_op *const op = &p->program->ops[index];
    const int64_t width = p->program->values[op->out].width;
    const row_sample *const s = &p->sample;

    APR_TRY(apr_trace_read(p->reference, op->in[0], p->input, p->err));
    APR_TRY(apr_trace_run(p->other, index, p->err));
    APR_TRY(apr_trace_read(p->other, op->out, p->rows[1], p->err));
    apr_status status = hold_sample(p, op);
    if (status == APR_OK) {
        memcpy(p->rows[0], p->rows[1], (size_t)(p->n_tokens * width) * sizeof(float));
        for (int64_t t = 0; t < p->n_tokens; t++)
            for (int64_t i = 0; i < s->n; i++) p->rows[0][t * width + s->first + i * s->stride] = p->held[t * s->n + i];
        status = check_output(p, index, p->n_tokens, width);
    }
    free(p->held);
    p->held = NULL;
    if (status == APR_OK) status = apr_trace_write(p->reference, op->out, p->rows[0], p->err);
    return status == APR_OK ? apr_trace_write(p->other, op->out, p->rows[0], p->err) : status;
}

static void count_product(parity *p, const apr_op *op)
{
    if (!is_plain_product(op)) return;
    const double n = (double)p->n_tokens * (double)p->program->values[op->in[0]].width;
    p->n_multiplied += n * (double)p->program->values[op->out].width;
    p->n_repeated += n * (double)p->sample.n;
}

static apr_status run_value(parity *p, size_t index, bool asked)
{
    const apr_op *const op = &p->program->ops[index];
    p->sample = sample_of(p, index);
    if (asked) count_product(p, op);
    if (asked && p->sample.stride > 1) return run_sampled(p, index);
    const bool has_state = apr_op_specs[op->kind]->state == APR_STATE_READ_AND_WRITTEN;
    const int out = op->out, in = op->in[0];

    if (asked && in >= 0) APR_TRY(apr_trace_read(p->reference, in, p->input, p->err));
    APR_TRY(apr_trace_run(p->reference, index, p->err));
    APR_TRY(apr_trace_read(p->reference, out, p->rows[0], p->err));
    if (asked) {
        APR_TRY(apr_trace_run(p->other, index, p->err));
        APR_TRY(apr_trace_read(p->other, out, p->rows[1], p->err));
        APR_TRY(check_output(p, index, p->n_tokens, p->program->values[out].width));
    }
    if (has_state) APR_TRY(copy_numbers(p, p->reference, p->other, op->state));
    return apr_trace_write(p->other, out, p->rows[0], p->err);
}

/* Compares the KV cells that a store wrote, decoded: keys (which = 0) or values (which = 1) of the tokens. */
static apr_status check_cells(parity *p, size_t index, int which)
{
    const int state = p->program->ops[index].state;
    const apr_state *const facts = &p->program->states[state];
    const apr_dtype dtype = apr_session_plan(p->reference)->kv_dtype;
    const int64_t width = which == 0 ? facts->key_dim : facts->value_dim, row_bytes = apr_kv_row_bytes(dtype, width);
    const size_t before = which == 0 ? 0 : (size_t)p->n_tokens * apr_trace_cell_bytes(p->reference, state, 0);

    if (apr_trace_cell_bytes(p->reference, state, which) == 0) return APR_OK;
    for (int side = 0; side < 2; side++)
        for (int64_t r = 0; r < p->n_tokens * facts->n_heads; r++)
            apr_ref_codecs[dtype].decode(p->cells[side] + before + (size_t)(r * row_bytes), p->rows[side] + r * width, width);
    return check_output(p, index, p->n_tokens, facts->n_heads * width);
}

static apr_status run_store(parity *p, size_t index, bool asked)
{
    const int state = p->program->ops[index].state;
    apr_session *const sessions[2] = {p->reference, p->other};

    p->sample = sample_of(p, index);
    APR_TRY(apr_trace_run(p->reference, index, p->err));
    if (asked) APR_TRY(apr_trace_run(p->other, index, p->err));
    for (int side = 0; side < (asked ? 2 : 1); side++)
        APR_TRY(apr_trace_read_cells(sessions[side], state, p->position, p->n_tokens, p->cells[side], p->err));
    for (int which = 0; which < 2 && asked; which++) APR_TRY(check_cells(p, index, which));
    return apr_trace_write_cells(p->other, state, p->position, p->n_tokens, p->cells[0], p->err);
}

/* Runs the next n tokens in both sessions. */
static apr_status run_batch(parity *p, int64_t n)
{
    p->n_tokens = n;
    APR_TRY(apr_trace_begin(p->reference, p->ids + p->position, n, p->err));
    APR_TRY(apr_trace_begin(p->other, p->ids + p->position, n, p->err));
    for (size_t i = 0; i < p->program->n_ops; i++) {
        const apr_op *const op = &p->program->ops[i];
        const bool asked = is_asked(p, op);
        if (op->out >= 0) APR_TRY(run_value(p, i, asked));
        else APR_TRY(run_store(p, i, asked));
    }
    apr_trace_end(p->reference);
    apr_trace_end(p->other);
    p->position += n;
    p->batch++;
    return APR_OK;
}

/* --- positions --- */

enum { COPY_CELLS = 256 };

static size_t kv_cell_bytes(const parity *p, int state)
{
    return apr_trace_cell_bytes(p->reference, state, 0) + apr_trace_cell_bytes(p->reference, state, 1);
}

static apr_status copy_cells(const parity *p, apr_session *from, apr_session *to, int state, int64_t begin, int64_t end)
{
    uint8_t *const cells = malloc(COPY_CELLS * kv_cell_bytes(p, state));
    apr_status status = cells != NULL ? APR_OK : apr_no_memory(p->err, "keys and values");

    for (int64_t first = begin; first < end && status == APR_OK; first += COPY_CELLS) {
        const int64_t n = end - first < COPY_CELLS ? end - first : COPY_CELLS;
        status = apr_trace_read_cells(from, state, first, n, cells, p->err);
        if (status == APR_OK) status = apr_trace_write_cells(to, state, first, n, cells, p->err);
    }
    free(cells);
    return status;
}

/* Evaluates up to `position` with one session and copies its keys and values to the other. With two models the reference evaluates;
 * with two backends the other one, because it is faster. */
static apr_status evaluate_to(parity *p, int64_t position)
{
    apr_session *const from = p->options->weights != NULL ? p->reference : p->other, *const to =
                                                                                         from == p->reference ? p->other : p->reference;
    const int64_t begin = p->position;

    if (position == begin) return APR_OK;
    APR_TRY(apr_session_eval(from, p->ids + begin, (size_t)(position - begin), NULL, p->err));
    for (size_t state = 0; state < p->program->n_states; state++)
        APR_TRY(apr_state_has_cells(&p->program->states[state]) ? copy_cells(p, from, to, (int)state, begin, position)
                                                                : copy_numbers(p, from, to, (int)state));
    apr_trace_seek(to, position);
    p->position = position;
    return APR_OK;
}

/* Cells at a text's beginning that are not copied: some models' attention goes to them, and copies would take nearly all of it. */
enum { BEGINNING = 16 };

/* Can cells be copies? Not where a state has the sum of all tokens, nor where positions with equal keys would be chosen among. */
static bool can_fill(const apr_program *program)
{
    for (size_t i = 0; i < program->n_states; i++)
        if (!apr_state_has_cells(&program->states[i])) return false;
    for (size_t i = 0; i < program->n_ops; i++)
        if (program->ops[i].kind == APR_OP_INDEX) return false;
    return program->n_states > 0;
}

/* n cells drawn from the `n_from` cells of `from`: keys, then values. */
static void draw_cells(const parity *p, int state, const uint8_t *from, int64_t n_from, uint64_t *random, uint8_t *cells, int64_t n)
{
    const size_t key = apr_trace_cell_bytes(p->reference, state, 0), value = apr_trace_cell_bytes(p->reference, state, 1);

    for (int64_t i = 0; i < n; i++) {
        const size_t drawn = (size_t)(apr_random(random) % (uint64_t)n_from);
        memcpy(cells + (size_t)i * key, from + drawn * key, key);
        memcpy(cells + (size_t)n * key + (size_t)i * value, from + (size_t)n_from * key + drawn * value, value);
    }
}

/* Fills cells [begin, end) of a state in both sessions. A sliding window still has the cells of its last positions. */
static apr_status fill_cells(const parity *p, int state, int64_t begin, int64_t end)
{
    const apr_state *const facts = &p->program->states[state];
    const int64_t evaluated = begin - BEGINNING,
                  n_from = facts->kind == APR_STATE_KV_WINDOW && facts->window < evaluated ? facts->window : evaluated;
    uint8_t *const from = malloc((size_t)n_from * kv_cell_bytes(p, state)), *const cells = malloc(COPY_CELLS * kv_cell_bytes(p, state));
    uint64_t random = (uint64_t)state;

    apr_status status = from != NULL && cells != NULL ? APR_OK : apr_no_memory(p->err, "keys and values");
    if (status == APR_OK) status = apr_trace_read_cells(p->reference, state, begin - n_from, n_from, from, p->err);
    for (int64_t first = begin; first < end && status == APR_OK; first += COPY_CELLS) {
        const int64_t n = end - first < COPY_CELLS ? end - first : COPY_CELLS;
        draw_cells(p, state, from, n_from, &random, cells, n);
        status = apr_trace_write_cells(p->reference, state, first, n, cells, p->err);
        if (status == APR_OK) status = apr_trace_write_cells(p->other, state, first, n, cells, p->err);
    }
    free(from);
    free(cells);
    return status;
}

static apr_status fill_to(parity *p, int64_t position)
{
    for (size_t state = 0; state < p->program->n_states; state++) APR_TRY(fill_cells(p, (int)state, p->position, position));
    apr_trace_seek(p->reference, position);
    apr_trace_seek(p->other, position);
    p->result->n_filled += position - p->position;
    p->position = position;
    return APR_OK;
}

static apr_status advance_to(parity *p, int64_t position)
{
    const int64_t first = p->options->most_evaluated - APR_PARITY_LAST_EVALUATED, last = position - APR_PARITY_LAST_EVALUATED;

    if (first >= 2 * BEGINNING && first > p->position && first < last && can_fill(p->program)) {
        APR_TRY(evaluate_to(p, first));
        APR_TRY(fill_to(p, last));
    }
    return evaluate_to(p, position);
}

static apr_status allocate(parity *p, const int32_t *ids, int64_t n_ids, int64_t n_ctx, int32_t **text)
{
    size_t n_floats = 1, n_cells = 1;
    apr_parity_result *const result = p->result;

    for (size_t i = 0; i < p->program->n_values; i++)
        if ((size_t)p->program->values[i].width > n_floats) n_floats = (size_t)p->program->values[i].width;
    for (size_t i = 0; i < p->program->n_states; i++) {
        const apr_state *const s = &p->program->states[i];
        if (!apr_state_has_cells(s)) continue;
        const size_t width = (size_t)(s->n_heads * (s->key_dim > s->value_dim ? s->key_dim : s->value_dim)),
                     n_bytes = kv_cell_bytes(p, (int)i);
        if (width > n_floats) n_floats = width;
        if (n_bytes > n_cells) n_cells = n_bytes;
    }
    *text = malloc((size_t)n_ctx * sizeof **text);
    p->input = malloc(n_floats * (size_t)p->n_batch * sizeof(float));
    for (int side = 0; side < 2; side++) {
        p->rows[side] = malloc(n_floats * (size_t)p->n_batch * sizeof(float));
        p->cells[side] = malloc(n_cells * (size_t)p->n_batch);
    }
    result->n_layers = p->program->num_layers;
    result->worst_peak = calloc((size_t)result->n_layers + 1, sizeof *result->worst_peak);
    result->worst_relative = calloc((size_t)result->n_layers + 1, sizeof *result->worst_relative);
    if (*text == NULL || p->input == NULL || p->rows[0] == NULL || p->rows[1] == NULL || p->cells[0] == NULL || p->cells[1] == NULL ||
        result->worst_peak == NULL || result->worst_relative == NULL)
        return apr_no_memory(p->err, "values to compare");
    for (int64_t i = 0; i < n_ctx; i++) (*text)[i] = ids[i % n_ids];
    p->ids = *text;
    return APR_OK;
}

/* The tokens of a batch: no more than both sessions evaluate at a time, with logits of each. */
static int64_t batch_of(const parity *p)
{
    const apr_plan *const plans[2] = {apr_session_plan(p->reference), apr_session_plan(p->other)};
    int64_t n = p->options->n_batch;

    for (int side = 0; side < 2; side++) {
        if (plans[side]->n_batch < n) n = plans[side]->n_batch;
        if (plans[side]->n_logits < n) n = plans[side]->n_logits;
    }
    return n;
}

/* Is the position after the batches of the one before it, and does it fit? end: the position after them. */
static bool is_run(const parity *p, int64_t position, int64_t end, int64_t n_ctx)
{
    return position >= end && position <= n_ctx - p->n_batch - 1;
}

static size_t count_batches(const parity *p, int64_t n_ctx)
{
    const apr_parity_options *const o = p->options;
    int64_t end = 0;
    size_t n = 0;

    for (size_t i = 0; i < o->n_positions; i++) {
        if (!is_run(p, o->positions[i], end, n_ctx)) continue;
        end = o->positions[i] + p->n_batch + 1;
        n += 2;
    }
    return n;
}

static apr_status run_positions(parity *p, int64_t n_ctx)
{
    const apr_parity_options *const o = p->options;

    p->n_batches = count_batches(p, n_ctx);
    for (size_t i = 0; i < o->n_positions; i++) {
        const int64_t position = o->positions[i];
        if (!is_run(p, position, p->position, n_ctx)) continue;
        APR_TRY(advance_to(p, position));
        p->result->n_evaluated = position - p->result->n_filled;
        APR_TRY(run_batch(p, p->n_batch));
        APR_TRY(run_batch(p, 1));
        p->result->n_positions++;
        p->result->last_position = p->position - 1;
    }
    if (p->result->n_checked == 0)
        return apr_fail(p->err, APR_E_USAGE,
                        "no operation was compared: these positions do not fit in the context of %lld tokens, or the model has no such "
                        "layer or operation",
                        (long long)n_ctx);
    return APR_OK;
}

apr_status apr_parity_run(apr_session *reference, apr_session *other, const int32_t *ids, int64_t n_ids, const apr_parity_options *options,
                          apr_parity_result *result, apr_error *err)
{
    parity p = {.reference = reference,
                .other = other,
                .program = apr_session_program(reference),
                .options = options,
                .result = result,
                .err = err};
    const int64_t n_reference = apr_session_plan(reference)->n_ctx, n_other = apr_session_plan(other)->n_ctx,
                  n_ctx = n_reference < n_other ? n_reference : n_other;
    int32_t *text = NULL;

    *result = (apr_parity_result){0};
    if (n_ids < 1 || options->n_batch < 1) return apr_fail(err, APR_E_USAGE, "there are no tokens to compare");
    APR_TRY(apr_programs_same_shape(reference, other, err));
    if (apr_session_plan(reference)->kv_dtype != apr_session_plan(other)->kv_dtype)
        return apr_fail(err, APR_E_USAGE, "the two sessions store keys and values in different types");
    apr_session_reset(reference);
    apr_session_reset(other);
    p.n_batch = batch_of(&p);
    apr_status status = allocate(&p, ids, n_ids, n_ctx, &text);
    if (status == APR_OK) status = run_positions(&p, n_ctx);
    result->share = p.n_multiplied > 0.0 ? p.n_repeated / p.n_multiplied : 1.0;
    free(text);
    free(p.input);
    for (int side = 0; side < 2; side++) {
        free(p.rows[side]);
        free(p.cells[side]);
    }
    apr_session_reset(reference);
    apr_session_reset(other);
    return status;
}

void apr_parity_result_close(apr_parity_result *result)
{
    free(result->worst_peak);
    free(result->worst_relative);
    result->worst_peak = result->worst_relative = NULL;
}
