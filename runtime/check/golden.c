/* golden.c - reads recorded arrays, evaluates their ids in every chunk size, and applies the bounds of runtime/check/parity.h. */
#include "runtime/check/golden.h"

#include "formats/base/bytes.h"
#include "formats/number/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- arrays --- */

static apr_status read_ids(const apr_model *file, const char *name, int32_t **ids, int64_t *n, apr_error *err)
{
    const apr_tensor *const array = apr_model_find(file, name);

    if (array == NULL) return APR_OK;
    if ((array->dtype != APR_I32 && array->dtype != APR_I64) || apr_tensor_elems(array) < 1)
        return apr_fail(err, APR_E_DAMAGED, "%s: '%s' is not an array of integers", file->path, name);
    *n = apr_tensor_elems(array);
    *ids = malloc((size_t)*n * sizeof **ids);
    if (*ids == NULL) return apr_no_memory(err, "recorded ids");
    for (int64_t i = 0; i < *n; i++) {
        const int64_t id =
            array->dtype == APR_I32 ? (int32_t)apr_load_le32(array->data + 4 * i) : (int64_t)apr_load_le64(array->data + 8 * i);
        if (id < 0 || id > INT32_MAX)
            return apr_fail(err, APR_E_DAMAGED, "%s: number %lld of '%s' is not a token id", file->path, (long long)i, name);
        (*ids)[i] = (int32_t)id;
    }
    return APR_OK;
}

/* Reads a float32 array of `rank` dimensions. A dimension that is not yet known (<= 0) is set from the array. */
static apr_status read_floats(const apr_model *file, const char *name, int rank, int64_t *const dims[], float **values, apr_error *err)
{
    const apr_tensor *const array = apr_model_find(file, name);
    char shape[96];

    if (array == NULL) return APR_OK;
    bool fits = array->dtype == APR_F32 && array->rank == rank && apr_tensor_elems(array) > 0;
    for (int i = 0; i < rank && fits; i++) {
        if (*dims[i] <= 0) *dims[i] = array->dims[i];
        fits = *dims[i] == array->dims[i];
    }
    if (!fits)
        return apr_fail(err, APR_E_DAMAGED, "%s: '%s' is %s %s, which does not match the other arrays", file->path, name,
                        apr_dtypes[array->dtype].name, apr_dims_text(array, shape, sizeof shape));
    const int64_t n = apr_tensor_elems(array);
    *values = malloc((size_t)n * sizeof **values);
    if (*values == NULL) return apr_no_memory(err, "recorded outputs");
    for (int64_t i = 0; i < n; i++) (*values)[i] = apr_f32_from_bits(apr_load_le32(array->data + 4 * i));
    return APR_OK;
}

static apr_status read_arrays(apr_golden_arrays *a, const apr_model *file, apr_error *err)
{
    APR_TRY(read_ids(file, "ids", &a->ids, &a->n_ids, err));
    if (a->ids == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: the integer array 'ids' is missing", file->path);
    APR_TRY(read_floats(file, "logits", 2, (int64_t *const[]){&a->n_ids, &a->vocab_size}, &a->logits, err));
    APR_TRY(read_floats(file, "hidden", 3, (int64_t *const[]){&a->n_taps, &a->n_ids, &a->hidden_size}, &a->hidden, err));
    APR_TRY(read_ids(file, "ids2", &a->ids2, &a->n_ids2, err));
    APR_TRY(read_floats(file, "last2", 1, (int64_t *const[]){&a->vocab_size}, &a->last2, err));
    if ((a->ids2 == NULL) != (a->last2 == NULL))
        return apr_fail(err, APR_E_DAMAGED, "%s: 'ids2' and 'last2' must both be present", file->path);
    if (a->logits == NULL && a->hidden == NULL && a->last2 == NULL)
        return apr_fail(err, APR_E_DAMAGED, "%s: nothing to compare with: no array 'logits', 'hidden' or 'last2'", file->path);
    return APR_OK;
}

apr_status apr_golden_open(apr_golden_arrays *arrays, const char *path, apr_error *err)
{
    apr_model file;

    *arrays = (apr_golden_arrays){0};
    APR_TRY(apr_model_open(&file, path, err));
    const apr_status status = read_arrays(arrays, &file, err);
    apr_model_close(&file);
    return status;
}

void apr_golden_close(apr_golden_arrays *a)
{
    free(a->ids);
    free(a->ids2);
    free(a->logits);
    free(a->hidden);
    free(a->last2);
    *a = (apr_golden_arrays){0};
}

int64_t apr_golden_context(const apr_golden_arrays *a) { return a->n_ids > a->n_ids2 ? a->n_ids : a->n_ids2; }

/* --- evaluation --- */

typedef struct outputs {
    float *logits, *hidden; /* [n_ids, vocab], [n_taps, n_ids, width]; NULL: not recorded */
    float *chunk;           /* [n_taps, n, width] hidden states of one chunk of n tokens */
} outputs;

static void close_outputs(outputs *o)
{
    free(o->logits);
    free(o->hidden);
    free(o->chunk);
}

static apr_status open_outputs(outputs *o, const apr_golden_arrays *a, apr_error *err)
{
    const size_t n_hidden = (size_t)(a->n_taps * a->n_ids * a->hidden_size);

    *o = (outputs){0};
    if (a->logits != NULL) o->logits = malloc((size_t)(a->n_ids * a->vocab_size) * sizeof(float));
    if (a->hidden != NULL) o->hidden = malloc(n_hidden * sizeof(float));
    if (a->hidden != NULL) o->chunk = malloc(n_hidden * sizeof(float));
    if ((a->logits == NULL || o->logits != NULL) && (a->hidden == NULL || (o->hidden != NULL && o->chunk != NULL))) return APR_OK;
    close_outputs(o);
    return apr_no_memory(err, "outputs to compare");
}

/* Evaluates ids from position 0, n_together tokens at a time, and keeps all outputs. */
static apr_status evaluate(apr_session *session, const apr_golden_arrays *a, int64_t n_together, const outputs *o, apr_error *err)
{
    apr_session_reset(session);
    for (int64_t first = 0; first < a->n_ids; first += n_together) {
        const int64_t n = a->n_ids - first < n_together ? a->n_ids - first : n_together;
        const apr_eval_output out = {
            .all_logits = true, .logits = o->logits != NULL ? o->logits + first * a->vocab_size : NULL, .hidden = o->chunk};
        APR_TRY(apr_session_eval(session, a->ids + first, (size_t)n, &out, err));
        for (int64_t tap = 0; o->hidden != NULL && tap < a->n_taps; tap++)
            memcpy(o->hidden + (tap * a->n_ids + first) * a->hidden_size, o->chunk + tap * n * a->hidden_size,
                   (size_t)(n * a->hidden_size) * sizeof(float));
    }
    return APR_OK;
}

static apr_status evaluate_ids(apr_session *session, const int32_t *ids, int64_t n_ids, int64_t n_together, apr_error *err)
{
    apr_session_reset(session);
    for (int64_t first = 0; first < n_ids; first += n_together)
        APR_TRY(apr_session_eval(session, ids + first, (size_t)(n_ids - first < n_together ? n_ids - first : n_together), NULL, err));
    return APR_OK;
}

/* --- checks --- */

/* A NaN difference counts as the largest. A number that was recorded as infinite (a masked token) must be the same infinity. */
static double largest_difference(const float *reference, const float *found, int64_t n)
{
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = isinf(reference[i]) && reference[i] == found[i] ? 0.0 : fabs((double)reference[i] - (double)found[i]);
        if (!(difference <= worst)) worst = difference;
        if (isnan(worst)) break;
    }
    return worst;
}

/* The largest finite magnitude. Bounds are relative to it, so infinite numbers are skipped. */
static double largest_number(const float *values, int64_t n)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i])) largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

/* The facts of a run over n_tokens in chunks of n_together. The last chunk may be a single token, which uses the decode kernels. */
static apr_run_facts facts_of(const apr_session *session, int64_t n_tokens, int64_t n_together)
{
    apr_run_facts facts = apr_trace_run_facts(session, n_together);
    facts.i16_products = facts.i16_products || (n_tokens % n_together == 1 && apr_trace_run_facts(session, 1).i16_products);
    return facts;
}

static void set_bound(apr_golden_result *f, const apr_session *session, double tolerance)
{
    f->exact = apr_session_is_exact(session);
    f->bound = tolerance;
    if (tolerance > 0.0) return;
    f->reason = apr_run_bound_of(facts_of(session, f->n_tokens, f->n_together));
    f->bound = f->reason.relative * f->peak;
}

bool apr_golden_is_good(const apr_golden_result *f) { return f->n_good == f->n_rows && f->routes.n_wrong == 0; }

/* Adds the expert choices that were compared during this evaluation. */
static void add_routes(apr_golden_result *f, const apr_routes *routes)
{
    if (routes == NULL) return;
    f->routes = routes->count;
    if (f->routes.n_wrong > 0 && f->first_bad[0] == '\0')
        snprintf(f->first_bad, sizeof f->first_bad, "another %s in layer %d, token %lld, by %.2g",
                 f->routes.first_is_position ? "position" : "expert", f->routes.first_layer, (long long)f->routes.first_position,
                 f->routes.first_gap);
}

/* Compares the session's expert choices with the recorded ones from now on; routes NULL: stop. */
static void watch_routes(apr_session *session, apr_routes *routes, int64_t n_together)
{
    if (routes == NULL) apr_routes_compare_stop(session);
    else apr_routes_compare(routes, session, apr_run_bound_of(apr_trace_run_facts(session, n_together)).relative);
}

/* Compares n_rows more rows; row i belongs to token first_token + i % n_tokens of the text. */
static void compare_rows(apr_golden_result *f, const float *reference, const float *found, int64_t n_rows, int64_t width,
                         int64_t first_token)
{
    for (int64_t row = 0; row < n_rows; row++) {
        const double worst = largest_difference(reference + row * width, found + row * width, width);
        const bool good = worst <= f->bound;
        f->n_rows++;
        f->n_good += good;
        if (!(worst <= f->worst) && !isnan(f->worst)) f->worst = worst;
        if (good || f->first_bad[0] != '\0') continue;
        const long long token = (long long)(first_token + row % f->n_tokens), tap = (long long)(row / f->n_tokens);
        if (f->what != APR_GOLDEN_HIDDEN) snprintf(f->first_bad, sizeof f->first_bad, "token %lld", token);
        else if (tap == 0) snprintf(f->first_bad, sizeof f->first_bad, "embeddings, token %lld", token);
        else snprintf(f->first_bad, sizeof f->first_bad, "after layer %lld, token %lld", tap, token);
    }
}

static apr_status check_widths(const apr_session *session, const apr_golden_arrays *a, apr_error *err)
{
    const apr_program *const p = apr_session_program(session);

    if ((a->logits != NULL || a->last2 != NULL) && a->vocab_size != p->vocab_size)
        return apr_fail(err, APR_E_NO, "the recorded logits are %lld wide, the model's %lld", (long long)a->vocab_size,
                        (long long)p->vocab_size);
    if (a->hidden != NULL && (a->hidden_size != p->hidden_size || a->n_taps != (int64_t)p->n_taps))
        return apr_fail(err, APR_E_NO, "the recorded hidden states are %lld of width %lld, the model's %zu of %lld", (long long)a->n_taps,
                        (long long)a->hidden_size, p->n_taps, (long long)p->hidden_size);
    if (apr_golden_context(a) > apr_session_plan(session)->n_ctx)
        return apr_fail(err, APR_E_USAGE, "the recorded texts have %lld tokens and do not fit in a context of %lld",
                        (long long)apr_golden_context(a), (long long)apr_session_plan(session)->n_ctx);
    return APR_OK;
}

static apr_status compare(apr_session *session, apr_routes *routes, const apr_golden_arrays *a, int64_t n_together, double tolerance,
                          apr_golden_result figures[2], apr_error *err)
{
    const int64_t n_logits = a->n_ids * a->vocab_size, tap = a->n_ids * a->hidden_size;
    apr_golden_result *const logits = &figures[0], *const hidden = &figures[1];
    outputs o;

    *logits = *hidden = (apr_golden_result){.n_together = n_together, .n_tokens = a->n_ids};
    hidden->what = APR_GOLDEN_HIDDEN;
    APR_TRY(check_widths(session, a, err));
    APR_TRY(open_outputs(&o, a, err));
    watch_routes(session, routes, n_together);
    const apr_status status = evaluate(session, a, n_together, &o, err);
    watch_routes(session, NULL, 0);
    if (status == APR_OK && a->logits != NULL) {
        logits->peak = largest_number(a->logits, n_logits);
        set_bound(logits, session, tolerance);
        compare_rows(logits, a->logits, o.logits, a->n_ids, a->vocab_size, 0);
        add_routes(logits, routes);
    }
    if (status == APR_OK && a->hidden != NULL) {
        hidden->peak = largest_number(a->hidden, a->n_taps * tap);
        set_bound(hidden, session, tolerance);
        compare_rows(hidden, a->hidden, o.hidden, a->n_taps * a->n_ids, a->hidden_size, 0);
    }
    close_outputs(&o);
    return status;
}

apr_status apr_golden_compare(apr_session *session, const apr_golden_arrays *a, int64_t n_together, double tolerance,
                              apr_golden_result figures[2], apr_error *err)
{
    return compare(session, NULL, a, n_together, tolerance, figures, err);
}

/* The parameters of a run. routes, routes2: recorded expert choices of the two texts, or NULL. */
typedef struct golden_run {
    apr_session *session;
    const apr_golden_arrays *arrays;
    apr_routes *routes, *routes2;
    double tolerance;
    apr_golden_fn on_figure;
    void *user;
    apr_error *err;
} golden_run;

/* Evaluates a text n_together tokens at a time. If last is not NULL, compares the logits of the last token with it. */
static apr_status check_text(const golden_run *g, bool second, int64_t n_together, const float *last, apr_golden_array what)
{
    const apr_golden_arrays *const a = g->arrays;
    const int64_t n_ids = second ? a->n_ids2 : a->n_ids, n = n_together < n_ids ? n_together : n_ids;
    apr_routes *const routes = second ? g->routes2 : g->routes;

    watch_routes(g->session, routes, n);
    const apr_status status = evaluate_ids(g->session, second ? a->ids2 : a->ids, n_ids, n, g->err);
    watch_routes(g->session, NULL, 0);
    if (status != APR_OK || last == NULL) return status;
    apr_golden_result f = {.what = what, .n_together = n, .n_tokens = n_ids, .peak = largest_number(last, a->vocab_size)};
    set_bound(&f, g->session, g->tolerance);
    compare_rows(&f, last, apr_session_logits(g->session), 1, a->vocab_size, n_ids - 1);
    add_routes(&f, routes);
    return g->on_figure(g->user, &f, g->err);
}

/* Evaluates the first text, then the second, then the first again, each from position 0. No state may leak from one to the next. */
static apr_status check_alternating(const golden_run *g, int64_t n_together)
{
    const apr_golden_arrays *const a = g->arrays;

    APR_TRY(check_text(g, false, n_together, NULL, APR_GOLDEN_AGAIN));
    APR_TRY(check_text(g, true, n_together, a->last2, APR_GOLDEN_SECOND));
    if (a->logits == NULL) return APR_OK;
    return check_text(g, false, n_together, a->logits + (a->n_ids - 1) * a->vocab_size, APR_GOLDEN_AGAIN);
}

/* Checks chunks of 1, 2, 3, 5, 8, ... tokens, then the whole prompt; skips chunks of at most `above` tokens. The Fibonacci sizes put chunk
 * ends at all places of attention windows, tiles and the KV ring buffer. */
static apr_status check_chunk_sizes(const golden_run *g, int64_t above)
{
    const apr_golden_arrays *const a = g->arrays;
    const int64_t longest = apr_golden_context(a);
    apr_golden_result figures[2];

    for (int64_t n = 1, next = 2; a->logits != NULL || a->hidden != NULL;) {
        const int64_t together = n < a->n_ids ? n : a->n_ids, sum = n + next;
        if (together > above) APR_TRY(compare(g->session, g->routes, a, together, g->tolerance, figures, g->err));
        for (int i = 0; i < 2; i++)
            if (together > above && figures[i].n_rows > 0) APR_TRY(g->on_figure(g->user, &figures[i], g->err));
        if (together == a->n_ids) break;
        n = next;
        next = sum;
    }
    if (a->last2 == NULL) return APR_OK;
    if (longest > above) APR_TRY(check_alternating(g, longest));
    return above < 1 ? check_alternating(g, 1) : APR_OK;
}

static bool is_rounded(const apr_session *session, int64_t n_together)
{
    const apr_run_facts facts = apr_trace_run_facts(session, n_together);
    return facts.fp16_products || facts.fp8_products;
}

static apr_status run_all(const golden_run *g)
{
    const int64_t longest = apr_golden_context(g->arrays), above = apr_trace_fp16_above(g->session);

    const bool has_i16_products = apr_trace_run_facts(g->session, 1).i16_products;
    APR_TRY(check_chunk_sizes(g, 0));
    if (!is_rounded(g->session, longest) && !has_i16_products) return APR_OK;
    apr_session_set_exact(g->session, true);
    const apr_status status = is_rounded(g->session, longest) ? APR_OK : check_chunk_sizes(g, has_i16_products ? 0 : above);
    apr_session_set_exact(g->session, false);
    return status;
}

apr_status apr_golden_run(apr_session *session, apr_session *reference, const apr_golden_arrays *a, double tolerance,
                          apr_golden_fn on_figure, void *user, apr_error *err)
{
    apr_routes routes = {0}, routes2 = {0};
    golden_run g = {.session = session, .arrays = a, .tolerance = tolerance, .on_figure = on_figure, .user = user, .err = err};
    apr_status status = check_widths(session, a, err);

    if (status == APR_OK && reference != NULL && apr_program_routes(apr_session_program(session))) {
        g.routes = &routes;
        g.routes2 = &routes2;
        status = apr_routes_record(&routes, reference, a->ids, a->n_ids, err);
        if (status == APR_OK && a->last2 != NULL) status = apr_routes_record(&routes2, reference, a->ids2, a->n_ids2, err);
    }
    if (status == APR_OK) status = run_all(&g);
    apr_routes_close(&routes);
    apr_routes_close(&routes2);
    return status;
}
