/* compare.c - KL divergence, argmax agreement and perplexity of two models on one text. */
#include "runtime/check/compare.h"

#include "formats/base/threads.h"
#include "runtime/session/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- rows --- */

/* Log-sum-exp of the logits, and their argmax. NaN if a logit is NaN or the largest is infinite. */
static double log_sum(const float *logits, int64_t n, int64_t *top)
{
    double sum = 0.0;

    *top = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[*top]) *top = i;
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[*top]);
    return (double)logits[*top] + log(sum);
}

apr_row_difference apr_compare_logits(const float *reference, const float *other, int64_t vocab_size, int32_t next)
{
    apr_row_difference d = {0};
    int64_t top_reference, top_other;
    const double log_reference = log_sum(reference, vocab_size, &top_reference), log_other = log_sum(other, vocab_size, &top_other);

    for (int64_t i = 0; i < vocab_size; i++) {
        const double log_p = (double)reference[i] - log_reference, log_q = (double)other[i] - log_other, p = exp(log_p);
        if (p > 0.0 || isnan(p)) d.kl += p * (log_p - log_q); /* p = 0 adds nothing; log p may be -inf */
    }
    if (d.kl < 0.0) d.kl = 0.0; /* rounding; the exact sum is never negative */
    d.same_top = top_reference == top_other && isfinite(log_reference) && isfinite(log_other);
    if (next >= 0) {
        d.nll_reference = log_reference - (double)reference[next];
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

static void add_row(apr_window_sums *sums, const apr_row_difference *r, bool scored)
{
    sums->kl += r->kl;
    sums->n_same_top += r->same_top;
    sums->n_rows++;
    if (!scored) return;
    sums->nll_reference += r->nll_reference;
    sums->nll_other += r->nll_other;
    sums->n_scored++;
}

apr_status apr_divergence_of(apr_divergence *d, const apr_row_difference *rows, int64_t n_rows, int64_t window, apr_error *err)
{
    apr_window_sums all = {0};
    int64_t n_second = 0, n_second_top = 0;

    *d = (apr_divergence){.n_rows = n_rows, .window = window};
    if (n_rows < 1 || window < 1) return apr_fail(err, APR_E_USAGE, "there are no positions to compare");
    d->kl = malloc((size_t)n_rows * sizeof *d->kl);
    d->n_windows = (size_t)((n_rows - 1) / window + 1);
    d->windows = calloc(d->n_windows, sizeof *d->windows);
    if (d->kl == NULL || d->windows == NULL) return apr_no_memory(err, "the divergences");
    for (int64_t i = 0; i < n_rows; i++) {
        const apr_row_difference *const r = &rows[i];
        d->kl[i] = (float)r->kl;
        add_row(&all, r, is_scored(d, i));
        add_row(&d->windows[i / window], r, is_scored(d, i));
        if (!(r->kl <= d->largest) && !isnan(d->largest)) d->largest = r->kl, d->largest_at = i;
        if (i % window >= window / 2) d->second_half += r->kl, n_second_top += r->same_top, n_second++;
    }
    d->n_scored = all.n_scored;
    d->mean = all.kl / (double)n_rows;
    d->same_top = (double)all.n_same_top / (double)n_rows;
    d->second_half = n_second > 0 ? d->second_half / (double)n_second : d->mean;
    d->second_half_top = n_second > 0 ? (double)n_second_top / (double)n_second : d->same_top;
    d->perplexity_reference = d->n_scored > 0 ? exp(all.nll_reference / (double)d->n_scored) : NAN;
    d->perplexity_other = d->n_scored > 0 ? exp(all.nll_other / (double)d->n_scored) : NAN;
    return order_statistics(d, rows, err);
}

void apr_divergence_close(apr_divergence *d)
{
    free(d->kl);
    free(d->windows);
    d->kl = NULL;
    d->windows = NULL;
}

apr_status apr_divergence_context_text(const apr_divergence *d, const apr_tokenizer *tokenizer, const int32_t *ids, char **text,
                                       size_t *n_bytes, apr_error *err)
{
    const int64_t at = d->largest_at, window_begin = at - at % d->window, first = at - 5 > window_begin ? at - 5 : window_begin;
    return apr_tokenizer_decode(tokenizer, ids + first, (size_t)(at - first + 1), true, text, n_bytes, err);
}

/* --- both models, a chunk of tokens at a time --- */

/* How many rows of the reference's logits are held: more when the vocabulary is small, so that a prompt needs fewer evaluations. */
enum { HELD_BYTES = 1 << 26, FEWEST_ROWS = 32, MOST_ROWS = 512 };

static int64_t rows_held(int64_t n_bytes, int64_t vocab_size, int64_t window, int64_t piece)
{
    const int64_t fit = n_bytes / (vocab_size * (int64_t)sizeof(float));
    const int64_t chosen = fit < FEWEST_ROWS ? FEWEST_ROWS : fit > MOST_ROWS ? MOST_ROWS : fit;
    const int64_t rows = piece > 0 ? piece : chosen;
    return rows < window ? rows : window;
}

uint64_t apr_compare_bytes(int64_t vocab_size, int64_t window, int64_t piece)
{
    return (uint64_t)rows_held(HELD_BYTES, vocab_size, window, piece) * (uint64_t)vocab_size * sizeof(float);
}

/* The GPU of the other model's session, if both models run on one GPU each: there the rows are compared. */
typedef struct gpu_rows {
    const apr_cuda_api *cuda;
    apr_cuda_device *device, *device_of_reference;
    float *reference; /* [n_held, vocab_size] in its memory; NULL: the host compares */
    int32_t *next;    /* [n_held] likewise */
    apr_cuda_logits_difference *found;
} gpu_rows;

typedef struct comparison {
    const int32_t *ids, *ids_other; /* of the window, starting at the current chunk */
    int64_t n_left, n_held, vocab_size;
    float *reference; /* [n_held, vocab_size] on the host, or NULL while a GPU holds them */
    gpu_rows gpu;
    int32_t *next;                     /* [n_held] the tokens that follow those of the chunk; -1: none */
    apr_cuda_logits_difference *found; /* [n_held] */
    apr_row_difference *rows;          /* of the chunk */
} comparison;

/* A model that is compared with the reference, and its rows. */
typedef struct compared {
    apr_session *session;
    apr_row_difference *rows; /* [n_ids] of the text */
} compared;

enum { MOST_COMPARED = 2 };

/* Rows that are held on a GPU: a window is then evaluated in fewer pieces. */
enum { GPU_HELD_BYTES = 1 << 29 };

/* Allocates the rows on the GPU; without memory there the host compares. */
static void open_gpu_rows(gpu_rows *g, const apr_session *reference, const apr_session *other, int64_t n_rows, int64_t vocab_size)
{
    const uint64_t row = (uint64_t)vocab_size * sizeof(float) + sizeof *g->next + sizeof *g->found;
    const apr_cuda_api *cuda;
    void *memory = NULL;

    *g = (gpu_rows){0};
    if (apr_session_n_places(reference) > 1 || apr_session_n_places(other) > 1) return;
    g->device_of_reference = apr_trace_device(reference, &cuda);
    g->device = apr_trace_device(other, &g->cuda);
    if (g->device == NULL || g->device_of_reference == NULL || cuda != g->cuda) return;
    if (g->cuda->alloc(g->device, (uint64_t)n_rows * row, "logits to compare", &memory, NULL) != APR_OK) return;
    g->found = memory;
    g->reference = (float *)(void *)(g->found + n_rows);
    g->next = (int32_t *)(void *)(g->reference + n_rows * vocab_size);
}

static void close_gpu_rows(const gpu_rows *g)
{
    if (g->reference != NULL) g->cuda->release(g->device, g->found);
}

static void compare_on_host(const comparison *c, int64_t first, int64_t n_rows, const float *reference, const float *logits)
{
    const double steps = (double)n_rows * (double)c->vocab_size * 2.0 * APR_OPS_EXP;
#pragma omp parallel for schedule(dynamic) num_threads(apr_threads(apr_all_threads(), n_rows, steps))
    for (int64_t i = 0; i < n_rows; i++)
        c->rows[first + i] =
            apr_compare_logits(reference + i * c->vocab_size, logits + i * c->vocab_size, c->vocab_size, c->next[first + i]);
}

static apr_status keep_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    const comparison *const c = user;
    const size_t n_bytes = (size_t)(n_rows * c->vocab_size) * sizeof *logits;
    if (c->gpu.reference != NULL) return c->gpu.cuda->upload(c->gpu.device, c->gpu.reference + first * c->vocab_size, logits, n_bytes, err);
    memcpy(c->reference + first * c->vocab_size, logits, n_bytes);
    return APR_OK;
}

static apr_status keep_gpu_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    const gpu_rows *const g = &((const comparison *)user)->gpu;
    const int64_t vocab_size = ((const comparison *)user)->vocab_size;
    return g->cuda->transfer(g->device_of_reference, logits, g->device, g->reference + first * vocab_size,
                             (uint64_t)(n_rows * vocab_size) * sizeof *logits, err);
}

/* Rows on the host; the reference's are there, too, or are fetched (where the other session has left its GPU). */
static apr_status compare_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    const comparison *const c = user;
    const size_t n = (size_t)(n_rows * c->vocab_size);

    if (c->gpu.reference == NULL) {
        compare_on_host(c, first, n_rows, c->reference + first * c->vocab_size, logits);
        return APR_OK;
    }
    float *const fetched = malloc(n * sizeof *fetched);
    if (fetched == NULL) return apr_no_memory(err, "logits to compare");
    const apr_status status =
        c->gpu.cuda->download(c->gpu.device, fetched, c->gpu.reference + first * c->vocab_size, n * sizeof *fetched, err);
    if (status == APR_OK) compare_on_host(c, first, n_rows, fetched, logits);
    free(fetched);
    return status;
}

static apr_status compare_gpu_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    const comparison *const c = user;
    const gpu_rows *const g = &c->gpu;

    APR_TRY(g->cuda->upload(g->device, g->next, c->next + first, (uint64_t)n_rows * sizeof *c->next, err));
    APR_TRY(
        g->cuda->compare_logits(g->device, g->reference + first * c->vocab_size, logits, c->vocab_size, n_rows, g->next, g->found, err));
    APR_TRY(g->cuda->download(g->device, c->found, g->found, (uint64_t)n_rows * sizeof *c->found, err));
    for (int64_t i = 0; i < n_rows; i++) {
        const apr_cuda_logits_difference *const d = &c->found[i];
        c->rows[first + i] = (apr_row_difference){.kl = d->kl < 0.0 ? 0.0 : d->kl, /* rounding */
                                                  .nll_reference = d->nll_reference,
                                                  .nll_other = d->nll_other,
                                                  .same_top = d->same_top != 0};
    }
    return APR_OK;
}

/* Row `at` of the text is the window's first. */
static apr_status compare_window(apr_session *reference, const compared *others, size_t n_others, comparison *c, int64_t at, int64_t n,
                                 apr_error *err)
{
    const bool on_gpu = c->gpu.reference != NULL;
    const apr_eval_output keep = {.all_logits = true, .on_logits = keep_rows, .on_device_logits = on_gpu ? keep_gpu_rows : NULL, .user = c};
    const apr_eval_output compare = {
        .all_logits = true, .on_logits = compare_rows, .on_device_logits = on_gpu ? compare_gpu_rows : NULL, .user = c};

    apr_session_reset(reference);
    for (size_t k = 0; k < n_others; k++) apr_session_reset(others[k].session);
    for (c->n_left = n; c->n_left > 0;) {
        const int64_t take = c->n_left < c->n_held ? c->n_left : c->n_held;
        for (int64_t i = 0; i < take; i++) c->next[i] = i + 1 < c->n_left ? c->ids[i + 1] : -1;
        APR_TRY(apr_session_eval(reference, c->ids, (size_t)take, &keep, err));
        for (size_t k = 0; k < n_others; k++) {
            c->rows = others[k].rows + at;
            APR_TRY(apr_session_eval(others[k].session, c->ids_other, (size_t)take, &compare, err));
        }
        c->ids += take, c->ids_other += take, at += take, c->n_left -= take;
    }
    return APR_OK;
}

static apr_status compare_windows(apr_session *reference, const compared *others, size_t n_others, const apr_compared_text *text,
                                  comparison *held, void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_error *err)
{
    for (int64_t first = 0; first < text->n_ids; first += text->window) {
        const int64_t n = text->n_ids - first < text->window ? text->n_ids - first : text->window;
        held->ids = text->ids + first;
        held->ids_other = (text->ids_other != NULL ? text->ids_other : text->ids) + first;
        APR_TRY(compare_window(reference, others, n_others, held, first, n, err));
        if (on_rows != NULL) on_rows(user, first + n, text->n_ids);
    }
    return APR_OK;
}

/* Buffers for the chunks of a text, where its rows are compared. */
static apr_status open_comparison(comparison *c, const apr_session *reference, const apr_session *other, const apr_compared_text *text,
                                  apr_error *err)
{
    const int64_t n_gpu = rows_held(GPU_HELD_BYTES, c->vocab_size, text->window, text->piece);

    open_gpu_rows(&c->gpu, reference, other, n_gpu, c->vocab_size);
    c->n_held = c->gpu.reference != NULL ? n_gpu : rows_held(HELD_BYTES, c->vocab_size, text->window, text->piece);
    c->next = malloc((size_t)c->n_held * sizeof *c->next);
    c->found = malloc((size_t)c->n_held * sizeof *c->found);
    if (c->gpu.reference == NULL) c->reference = malloc((size_t)apr_compare_bytes(c->vocab_size, text->window, text->piece));
    const bool has_all = c->next != NULL && c->found != NULL && (c->reference != NULL || c->gpu.reference != NULL);
    return has_all ? APR_OK : apr_no_memory(err, "logits to compare");
}

static void close_comparison(const comparison *c)
{
    close_gpu_rows(&c->gpu);
    free(c->next);
    free(c->found);
    free(c->reference);
}

static apr_status check_text(const apr_session *reference, const apr_session *other, const apr_compared_text *text, apr_error *err)
{
    const int64_t vocab_size = apr_session_program(reference)->vocab_size, n_ctx = apr_session_plan(reference)->n_ctx;

    if (apr_session_program(other)->vocab_size != vocab_size)
        return apr_fail(err, APR_E_NO, "the vocabularies have %lld and %lld entries: their logits cannot be compared",
                        (long long)vocab_size, (long long)apr_session_program(other)->vocab_size);
    if (text->window < 1 || text->window > n_ctx || text->window > apr_session_plan(other)->n_ctx || text->n_ids < 1)
        return apr_fail(err, APR_E_USAGE, "windows of %lld tokens of a text of %lld cannot be compared in a context of %lld",
                        (long long)text->window, (long long)text->n_ids, (long long)n_ctx);
    return APR_OK;
}

static apr_status compare_all(apr_session *reference, apr_session *const *sessions, size_t n, const apr_compared_text *text,
                              void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err)
{
    comparison c = {.vocab_size = apr_session_program(reference)->vocab_size};
    compared others[MOST_COMPARED] = {{0}};
    apr_status status = APR_OK;

    for (size_t k = 0; k < n; k++) d[k] = (apr_divergence){0};
    for (size_t k = 0; k < n; k++) APR_TRY(check_text(reference, sessions[k], text, err));
    for (size_t k = 0; k < n; k++) {
        others[k] = (compared){sessions[k], malloc((size_t)text->n_ids * sizeof *others[k].rows)};
        if (others[k].rows == NULL) status = apr_no_memory(err, "logits to compare");
    }
    if (status == APR_OK) status = open_comparison(&c, reference, sessions[0], text, err);
    if (status == APR_OK) status = compare_windows(reference, others, n, text, &c, on_rows, user, err);
    for (size_t k = 0; k < n && status == APR_OK; k++) status = apr_divergence_of(&d[k], others[k].rows, text->n_ids, text->window, err);
    close_comparison(&c);
    for (size_t k = 0; k < n; k++) free(others[k].rows);
    return status;
}

apr_status apr_compare_on_text(apr_session *reference, apr_session *other, const apr_compared_text *text,
                               void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err)
{
    return compare_all(reference, &other, 1, text, on_rows, user, d, err);
}

bool apr_compare_can_share(const apr_session *reference, const apr_session *other)
{
    const apr_cuda_api *cuda;
    return apr_trace_device(reference, &cuda) == NULL && apr_trace_device(other, &cuda) == NULL;
}

apr_status apr_compare_two(apr_session *reference, apr_session *const others[2], const apr_compared_text *text,
                           void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence d[2], apr_error *err)
{
    return compare_all(reference, others, MOST_COMPARED, text, on_rows, user, d, err);
}

apr_status apr_compare_models(apr_session *reference, apr_session *other, const int32_t *ids, int64_t n_ids, int64_t window,
                              void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err)
{
    const apr_compared_text text = {.ids = ids, .n_ids = n_ids, .window = window};
    return apr_compare_on_text(reference, other, &text, on_rows, user, d, err);
}

double apr_divergence_bound(const apr_divergence *control)
{
    static const double noise = 1e-7; /* float32 sums in another order: the largest value measured on any model */
    return control != NULL ? 3.0 * control->mean + noise : noise;
}
