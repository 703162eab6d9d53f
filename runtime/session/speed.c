/* speed.c - repeated timed runs of prompts and decoded tokens. */
#include "runtime/session/speed.h"

#include "formats/base/clock.h"
#include "formats/base/random.h"
#include "runtime/session/trace.h"

#include <math.h>
#include <stdlib.h>

enum { WARM_UP_TOKENS = 4 };

/* A measurement in progress. */
typedef struct measurement {
    apr_session *session;
    const apr_speed_options *options;
    int32_t *ids;    /* of all positions */
    int64_t n_known; /* positions whose keys and values are stored */
    int n_done, n_runs;
    bool finite;
} measurement;

static apr_status check_logits(measurement *m, apr_error *err)
{
    const int64_t n = apr_session_program(m->session)->vocab_size;

    APR_TRY(apr_session_read_logits(m->session, err));
    const float *const logits = apr_session_logits(m->session);
    for (int64_t i = 0; m->finite && i < n; i++) m->finite = isfinite(logits[i]);
    return APR_OK;
}

/* Runs n_tokens of the stage after its depth. */
static apr_status run(measurement *m, const apr_speed_stage *stage, int64_t n_tokens, double *seconds, apr_error *err)
{
    apr_topk topk = {.n_wanted = 1}; /* what a generation asks of each token */
    const apr_eval_output wanted = {.best = &topk};
    const int64_t step = stage->one_by_one ? 1 : n_tokens;

    apr_trace_seek(m->session, stage->depth);
    const double begin = apr_seconds_now();
    for (int64_t i = 0; i < n_tokens; i += step)
        APR_TRY(apr_session_eval(m->session, m->ids + stage->depth + i, (size_t)step, &wanted, err));
    *seconds = apr_seconds_now() - begin;
    return APR_OK;
}

static void report_run(measurement *m)
{
    if (m->options->on_run != NULL) m->options->on_run(m->options->user, ++m->n_done, m->n_runs);
}

static apr_status run_all(measurement *m, const apr_speed_stage *stage, double *seconds, apr_error *err)
{
    const int64_t n_warm = stage->one_by_one && stage->n_tokens > WARM_UP_TOKENS ? WARM_UP_TOKENS : stage->n_tokens;

    APR_TRY(run(m, stage, n_warm, seconds, err));
    report_run(m);
    for (int i = 0; i < m->options->n_runs; i++) {
        APR_TRY(run(m, stage, stage->n_tokens, &seconds[i], err));
        report_run(m);
    }
    return APR_OK;
}

static apr_status read_to_depth(measurement *m, int64_t depth, apr_error *err)
{
    if (depth <= m->n_known) return APR_OK;
    apr_trace_seek(m->session, m->n_known);
    return apr_session_eval(m->session, m->ids + m->n_known, (size_t)(depth - m->n_known), NULL, err);
}

static apr_status measure_stage(measurement *m, apr_speed_stage *stage, apr_error *err)
{
    APR_TRY(read_to_depth(m, stage->depth, err));
    APR_TRY(run_all(m, stage, stage->seconds, err));
    if (m->n_known < stage->depth + stage->n_tokens) m->n_known = stage->depth + stage->n_tokens;
    APR_TRY(check_logits(m, err));
    apr_trace_only_products(m->session, true);
    const apr_status status = run_all(m, stage, stage->product_seconds, err);
    apr_trace_only_products(m->session, false);
    return status;
}

/* The largest position that the stages need, or an error. */
static apr_status check_stages(const apr_session *session, const apr_speed_stage *stages, size_t n_stages, int n_runs, int64_t *n_positions,
                               apr_error *err)
{
    const int64_t n_ctx = apr_session_plan(session)->n_ctx;

    *n_positions = 0;
    if (n_stages == 0 || n_runs < 1 || n_runs > APR_SPEED_MOST_RUNS) return apr_fail(err, APR_E_USAGE, "there is nothing to measure");
    for (size_t i = 0; i < n_stages; i++) {
        const apr_speed_stage *const s = &stages[i];
        if (s->depth < 0 || s->n_tokens < 1) return apr_fail(err, APR_E_USAGE, "there is nothing to measure: a stage without tokens");
        if (s->depth > n_ctx || s->n_tokens > n_ctx - s->depth)
            return apr_fail(err, APR_E_USAGE, "%lld tokens after %lld others do not fit the context of %lld", (long long)s->n_tokens,
                            (long long)s->depth, (long long)n_ctx);
        if (s->depth + s->n_tokens > *n_positions) *n_positions = s->depth + s->n_tokens;
    }
    return APR_OK;
}

apr_status apr_speed_measure(apr_session *session, apr_speed_stage *stages, size_t n_stages, const apr_speed_options *options, bool *finite,
                             apr_error *err)
{
    int64_t n_positions;
    uint64_t state = options->seed;

    APR_TRY(check_stages(session, stages, n_stages, options->n_runs, &n_positions, err));
    measurement m = {.session = session,
                     .options = options,
                     .ids = malloc((size_t)n_positions * sizeof *m.ids),
                     .n_runs = (int)n_stages * 2 * (options->n_runs + 1),
                     .finite = true};
    if (m.ids == NULL) return apr_no_memory(err, "the tokens to measure with");
    for (int64_t i = 0; i < n_positions; i++) m.ids[i] = (int32_t)(apr_random(&state) % (uint64_t)apr_session_program(session)->vocab_size);
    apr_session_reset(session);
    apr_status status = APR_OK;
    for (size_t i = 0; i < n_stages && status == APR_OK; i++) status = measure_stage(&m, &stages[i], err);
    apr_session_reset(session);
    *finite = m.finite;
    free(m.ids);
    return status;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

apr_spread apr_speed_spread(const double *values, int n)
{
    double sorted[APR_SPEED_MOST_RUNS];

    if (n < 1 || n > APR_SPEED_MOST_RUNS) return (apr_spread){0};
    for (int i = 0; i < n; i++) sorted[i] = values[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return (apr_spread){
        .median = n % 2 != 0 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]), .low = sorted[0], .high = sorted[n - 1]};
}

apr_spread apr_speed_rates(int64_t n_tokens, const double *seconds, int n)
{
    double rates[APR_SPEED_MOST_RUNS];

    if (n < 1 || n > APR_SPEED_MOST_RUNS || n_tokens < 1) return (apr_spread){0};
    for (int i = 0; i < n; i++) rates[i] = (double)n_tokens / fmax(seconds[i], 1e-9); /* at least one tick of the clock */
    return apr_speed_spread(rates, n);
}

double apr_speed_overhead(const apr_speed_stage *stage, int n_runs)
{
    return fmax(apr_speed_spread(stage->seconds, n_runs).median - apr_speed_spread(stage->product_seconds, n_runs).median, 0.0);
}
