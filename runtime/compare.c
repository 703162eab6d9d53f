/* compare.c - KL divergence, same top token and perplexity of two models on one text; what each type may cost. */
#include "runtime/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- rows --- */

/* log of the sum of exp(logit - max), max added; NaN when a logit is NaN or the best is infinite. */
static double log_sum(const float *logits, int64_t n, int64_t *top)
{
    double sum = 0.0;

    *top = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[*top]) *top = i;
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[*top]);
    return (double)logits[*top] + log(sum);
}

apr_row_difference apr_compare_logits(const float *truth, const float *other, int64_t vocab_size, int32_t next)
{
    apr_row_difference d = {0};
    int64_t top_truth, top_other;
    const double log_truth = log_sum(truth, vocab_size, &top_truth), log_other = log_sum(other, vocab_size, &top_other);

    for (int64_t i = 0; i < vocab_size; i++) {
        const double log_p = (double)truth[i] - log_truth, log_q = (double)other[i] - log_other, p = exp(log_p);
        if (p > 0.0 || isnan(p)) d.kl += p * (log_p - log_q); /* p of 0 counts nothing, whatever log p is */
    }
    if (d.kl < 0.0) d.kl = 0.0; /* rounding: the true sum is never negative */
    d.same_top = top_truth == top_other && isfinite(log_truth) && isfinite(log_other);
    if (next >= 0) {
        d.nll_truth = log_truth - (double)truth[next];
        d.nll_other = log_other - (double)other[next];
    }
    return d;
}

/* --- all rows --- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    if (isnan(x) || isnan(y)) return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

/* Median and 99th percentile; NaN sorts last. */
static apr_status order_statistics(apr_divergence *d, const apr_row_difference *rows, apr_error *err)
{
    double *const sorted = malloc((size_t)d->n_rows * sizeof *sorted + 1);
    const int64_t n = d->n_rows;

    if (sorted == NULL) return apr_no_memory(err, "the divergences");
    for (int64_t i = 0; i < n; i++) sorted[i] = rows[i].kl;
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    d->median = n % 2 != 0 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    d->p99 = sorted[(int64_t)ceil(0.99 * (double)n) - 1];
    free(sorted);
    return APR_OK;
}

static bool is_scored(const apr_divergence *d, int64_t i) { return i % d->window != d->window - 1 && i != d->n_rows - 1; }

apr_status apr_divergence_of(apr_divergence *d, const apr_row_difference *rows, int64_t n_rows, int64_t window, apr_error *err)
{
    double nll_truth = 0.0, nll_other = 0.0;
    int64_t n_second = 0, n_top = 0, n_second_top = 0;

    *d = (apr_divergence){.n_rows = n_rows, .window = window};
    if (n_rows < 1 || window < 1) return apr_fail(err, APR_E_USAGE, "there are no positions to compare");
    d->kl = malloc((size_t)n_rows * sizeof *d->kl);
    if (d->kl == NULL) return apr_no_memory(err, "the divergences");
    for (int64_t i = 0; i < n_rows; i++) {
        const apr_row_difference *const r = &rows[i];
        d->kl[i] = (float)r->kl;
        d->mean += r->kl;
        n_top += r->same_top;
        if (!(r->kl <= d->largest) && !isnan(d->largest)) d->largest = r->kl, d->largest_at = i;
        if (i % window >= window / 2) d->second_half += r->kl, n_second_top += r->same_top, n_second++;
        if (!is_scored(d, i)) continue;
        nll_truth += r->nll_truth;
        nll_other += r->nll_other;
        d->n_scored++;
    }
    d->mean /= (double)n_rows;
    d->same_top = (double)n_top / (double)n_rows;
    d->second_half = n_second > 0 ? d->second_half / (double)n_second : d->mean;
    d->second_half_top = n_second > 0 ? (double)n_second_top / (double)n_second : d->same_top;
    d->perplexity_truth = d->n_scored > 0 ? exp(nll_truth / (double)d->n_scored) : NAN;
    d->perplexity_other = d->n_scored > 0 ? exp(nll_other / (double)d->n_scored) : NAN;
    return order_statistics(d, rows, err);
}

void apr_divergence_close(apr_divergence *d)
{
    free(d->kl);
    d->kl = NULL;
}

/* --- both models, a few tokens at a time --- */

enum { CHUNK = 32 }; /* rows of the truth's logits that are held */

typedef struct comparison {
    const int32_t *ids; /* of the window, from the chunk's first token on */
    int64_t n_left, vocab_size;
    const float *truth;       /* [CHUNK, vocab_size] */
    apr_row_difference *rows; /* of the chunk */
} comparison;

static apr_status compare_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    const comparison *const c = user;
    (void)err;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < n_rows; i++) {
        const int32_t next = first + i + 1 < c->n_left ? c->ids[first + i + 1] : -1;
        c->rows[first + i] = apr_compare_logits(c->truth + (first + i) * c->vocab_size, logits + i * c->vocab_size, c->vocab_size, next);
    }
    return APR_OK;
}

static apr_status compare_window(apr_session *truth, apr_session *other, comparison *c, int64_t n, float *logits, apr_error *err)
{
    const apr_eval_output keep = {.all_logits = true, .logits = logits};
    const apr_eval_output compare = {.all_logits = true, .on_logits = compare_rows, .user = c};

    apr_session_reset(truth);
    apr_session_reset(other);
    for (c->n_left = n; c->n_left > 0;) {
        const int64_t take = c->n_left < CHUNK ? c->n_left : CHUNK;
        APR_TRY(apr_session_eval(truth, c->ids, (size_t)take, &keep, err));
        APR_TRY(apr_session_eval(other, c->ids, (size_t)take, &compare, err));
        c->ids += take, c->rows += take, c->n_left -= take;
    }
    return APR_OK;
}

apr_status apr_compare_models(apr_session *truth, apr_session *other, const int32_t *ids, int64_t n_ids, int64_t window,
                              void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err)
{
    const int64_t vocab_size = apr_session_program(truth)->vocab_size, n_ctx = apr_session_plan(truth)->n_ctx;
    apr_status status = APR_OK;

    *d = (apr_divergence){0};
    if (apr_session_program(other)->vocab_size != vocab_size)
        return apr_fail(err, APR_E_NO, "the vocabularies have %lld and %lld entries: their logits cannot be compared",
                        (long long)vocab_size, (long long)apr_session_program(other)->vocab_size);
    if (window < 1 || window > n_ctx || window > apr_session_plan(other)->n_ctx || n_ids < 1)
        return apr_fail(err, APR_E_USAGE, "windows of %lld tokens of a text of %lld cannot be compared in a context of %lld",
                        (long long)window, (long long)n_ids, (long long)n_ctx);
    apr_row_difference *const rows = malloc((size_t)n_ids * sizeof *rows);
    float *const logits = malloc(CHUNK * (size_t)vocab_size * sizeof *logits);
    if (rows == NULL || logits == NULL) status = apr_no_memory(err, "logits to compare");
    for (int64_t first = 0; first < n_ids && status == APR_OK; first += window) {
        const int64_t n = n_ids - first < window ? n_ids - first : window;
        comparison c = {.ids = ids + first, .vocab_size = vocab_size, .truth = logits, .rows = rows + first};
        status = compare_window(truth, other, &c, n, logits, err);
        if (on_rows != NULL) on_rows(user, first + n, n_ids);
    }
    if (status == APR_OK) status = apr_divergence_of(d, rows, n_ids, window, err);
    free(rows);
    free(logits);
    return status;
}

/* --- tensors --- */

typedef struct scan {
    const apr_tensor *tensor, *truth;
    double *sq_rows, *sq_errors; /* [n_rows], of the truth and of the difference; NULL without a truth */
} scan;

static void scan_block(const scan *s, int64_t first, int64_t n_rows, float *rows, apr_tensor_scan *found)
{
    const int64_t columns = apr_tensor_columns(s->tensor);
    const float *const was = rows + n_rows * columns;

    apr_decode_rows(s->tensor, first, n_rows, rows);
    for (int64_t i = 0; i < n_rows * columns; i++) {
        if (rows[i] != 0.0f) found->all_zero = false;
        if (isfinite(rows[i])) continue;
        const int64_t at = first * columns + i;
        if (found->first_nonfinite < 0 || at < found->first_nonfinite) found->first_nonfinite = at;
        found->n_nonfinite++;
    }
    if (s->truth == NULL) return;
    apr_decode_rows(s->truth, first, n_rows, rows + n_rows * columns);
    for (int64_t r = 0; r < n_rows; r++) {
        double sq = 0.0, sq_error = 0.0;
        for (int64_t i = r * columns; i < (r + 1) * columns; i++) {
            const double error = (double)was[i] - (double)rows[i];
            sq += (double)was[i] * (double)was[i];
            sq_error += error * error;
        }
        s->sq_rows[first + r] = sq;
        s->sq_errors[first + r] = sq_error;
    }
}

/* Rows were filled in any order; they are added up in theirs. */
static void sum_rows(const scan *s, int64_t n_rows, apr_tensor_scan *found)
{
    double sq = 0.0, sq_error = 0.0;

    for (int64_t r = 0; r < n_rows; r++) sq += s->sq_rows[r], sq_error += s->sq_errors[r];
    if (sq_error == 0.0) return;
    found->relative = sqrt(sq_error / sq);
    for (int64_t r = 0; r < n_rows; r++) {
        const double error =
            s->sq_errors[r] > 0.0 ? sqrt(s->sq_errors[r] / fmax(s->sq_rows[r], 1e-4 * sq / (double)n_rows)) : s->sq_errors[r];
        if (!(error <= found->worst_row) && !isnan(found->worst_row)) found->worst_row = error, found->worst_row_at = r;
    }
}

static apr_status scan_blocks(const scan *s, int64_t n_rows, int64_t columns, apr_tensor_scan *found, apr_error *err)
{
    const int64_t block = columns > 0 && columns < 16384 ? 16384 / columns : 1;
    const apr_tensor_scan nothing = *found;
    bool failed = false;

#pragma omp parallel
    {
        apr_tensor_scan own = nothing;
        float *const rows = malloc((size_t)(2 * block * columns) * sizeof *rows + 1);
#pragma omp for schedule(dynamic)
        for (int64_t first = 0; first < n_rows; first += block)
            if (rows != NULL) scan_block(s, first, n_rows - first < block ? n_rows - first : block, rows, &own);
#pragma omp critical
        {
            failed |= rows == NULL;
            found->n_nonfinite += own.n_nonfinite;
            found->all_zero &= own.all_zero;
            if (own.first_nonfinite >= 0 && (found->first_nonfinite < 0 || own.first_nonfinite < found->first_nonfinite))
                found->first_nonfinite = own.first_nonfinite;
        }
        free(rows);
    }
    return failed ? apr_no_memory(err, "a block of decoded rows") : APR_OK;
}

apr_status apr_scan_tensor(const apr_tensor *tensor, const apr_tensor *truth, apr_tensor_scan *found, apr_error *err)
{
    const int64_t columns = apr_tensor_columns(tensor), n_rows = columns > 0 ? apr_tensor_rows(tensor) : 0;
    scan s = {.tensor = tensor, .truth = truth};
    char have[96], want[96];

    *found = (apr_tensor_scan){.first_nonfinite = -1, .all_zero = n_rows > 0, .worst_row_at = -1};
    if (!apr_can_decode(tensor->dtype) || (truth != NULL && !apr_can_decode(truth->dtype)))
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' is %s, which cannot be decoded", tensor->name, apr_dtypes[tensor->dtype].name);
    if (truth != NULL &&
        (tensor->rank != truth->rank || memcmp(tensor->dims, truth->dims, (size_t)tensor->rank * sizeof *tensor->dims) != 0))
        return apr_fail(err, APR_E_NO, "tensor '%s' is %s, the reference's %s", tensor->name, apr_dims_text(tensor, have, sizeof have),
                        apr_dims_text(truth, want, sizeof want));
    if (truth != NULL) {
        s.sq_rows = calloc((size_t)n_rows + 1, sizeof *s.sq_rows);
        s.sq_errors = calloc((size_t)n_rows + 1, sizeof *s.sq_errors);
    }
    apr_status status = truth == NULL || (s.sq_rows != NULL && s.sq_errors != NULL) ? APR_OK : apr_no_memory(err, "the errors of the rows");
    if (status == APR_OK) status = scan_blocks(&s, n_rows, columns, found, err);
    if (status == APR_OK && truth != NULL) sum_rows(&s, n_rows, found);
    free(s.sq_rows);
    free(s.sq_errors);
    return status;
}

/* --- allowances --- */

const apr_allowance apr_allowance_same = {"same", 1e-9, 1.0, 1e-6, 1e-6, 1.000001};

/* By type; others go by their bits. op_error is about three times what Gaussian weights lose, row_error five. */
static const struct {
    apr_dtype dtype;
    double kl, same_top, op_error, row_error, perplexity;
} allowances[] = {
    {APR_F32, 1e-5, 0.995, 1e-3, 1e-6, 1.001},   {APR_F64, 1e-5, 0.995, 1e-3, 1e-6, 1.001},
    {APR_F16, 1e-4, 0.99, 2e-3, 0.05, 1.002},  /* 11 bits: rounding of 2^-12; small weights are lost below 2^-24 */
    {APR_BF16, 1e-3, 0.98, 1e-2, 0.02, 1.005}, /* 8 bits: 2^-9 */
    {APR_Q8_0, 6e-3, 0.94, 0.03, 0.10, 1.02},  /* KL seen 0.0005 to 0.0020 */
    {APR_Q8_1, 6e-3, 0.94, 0.03, 0.10, 1.02},    {APR_Q8_K, 6e-3, 0.94, 0.03, 0.10, 1.02},
    {APR_Q6_K, 0.03, 0.88, 0.08, 0.20, 1.05},                                              /* 0.006 to 0.011 */
    {APR_F8_E4M3, 0.07, 0.84, 0.12, 0.25, 1.06},                                           /* 0.008 to 0.022 */
    {APR_F8_E5M2, 0.20, 0.76, 0.24, 0.50, 1.15}, {APR_Q5_K, 0.12, 0.78, 0.15, 0.35, 1.12}, /* 0.015 to 0.048 */
    {APR_Q5_0, 0.16, 0.76, 0.20, 0.45, 1.15},    {APR_Q5_1, 0.14, 0.78, 0.16, 0.40, 1.15},
    {APR_Q4_K, 0.40, 0.65, 0.25, 0.60, 1.35}, /* 0.05 to 0.18 */
    {APR_IQ4_XS, 0.40, 0.65, 0.30, 0.60, 1.35},  {APR_IQ4_NL, 0.40, 0.65, 0.30, 0.60, 1.35},
    {APR_Q4_1, 0.55, 0.60, 0.30, 0.70, 1.5},     {APR_Q4_0, 0.70, 0.58, 0.32, 0.75, 1.6},  /* 0.09 to 0.29 */
    {APR_NVFP4, 0.60, 0.60, 0.32, 0.75, 1.6},    {APR_MXFP4, 0.90, 0.52, 0.38, 0.80, 1.9}, /* 0.15 to 0.33 */
};

apr_allowance apr_allowance_of(apr_dtype dtype)
{
    for (size_t i = 0; i < sizeof allowances / sizeof *allowances; i++)
        if (allowances[i].dtype == dtype)
            return (apr_allowance){apr_dtypes[dtype].name, allowances[i].kl,        allowances[i].same_top,
                                   allowances[i].op_error, allowances[i].row_error, allowances[i].perplexity};
    if (apr_dtype_bits(dtype) >= 4.0) return (apr_allowance){apr_dtypes[dtype].name, 0.7, 0.58, 0.32, 0.75, 1.6};
    return (apr_allowance){apr_dtypes[dtype].name, 2.5, 0.25, 0.7, 0.95, 8.0}; /* below 4 bits a model of this size is hardly itself */
}

apr_allowance apr_allowance_for(const apr_model *truth, const apr_model *other)
{
    int64_t changed[APR_DTYPE_COUNT] = {0}, n_all = 0;
    apr_allowance worst = apr_allowance_same;

    for (size_t i = 0; i < other->n_tensors; i++) {
        const apr_tensor *const tensor = &other->tensors[i], *const was = apr_model_find(truth, tensor->name);
        if (tensor->rank < 2 || !(apr_dtype_is_float(tensor->dtype) || apr_dtype_is_quantized(tensor->dtype))) continue;
        n_all += apr_tensor_elems(tensor);
        if (was == NULL || was->dtype != tensor->dtype) changed[tensor->dtype] += apr_tensor_elems(tensor);
    }
    /* a sliver of a lossy type does not excuse the rest, unless nothing else was changed */
    for (int pass = 0; pass < 2 && worst.kl == apr_allowance_same.kl; pass++)
        for (int t = 0; t < APR_DTYPE_COUNT; t++) {
            const apr_allowance a = apr_allowance_of((apr_dtype)t);
            const double least = pass == 0 ? 0.02 * (double)n_all : 0.0;
            if (changed[t] > 0 && (double)changed[t] >= least && a.kl > worst.kl) worst = a;
        }
    return worst;
}
