/* speed.c - a prompt and tokens behind it, again and again, with a clock beside. */
#include "runtime/session/speed.h"

#include "formats/base/clock.h"
#include "formats/base/random.h"

#include <math.h>
#include <stdlib.h>

static void fill_ids(int32_t *ids, int64_t n, int64_t vocab_size, uint64_t seed)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(apr_random(&state) % (uint64_t)vocab_size);
}

static apr_status look(apr_session *session, bool *finite, apr_error *err)
{
    const int64_t n = apr_session_program(session)->vocab_size;

    APR_TRY(apr_session_read_logits(session, err));
    const float *const logits = apr_session_logits(session);
    for (int64_t i = 0; *finite && i < n; i++) *finite = isfinite(logits[i]);
    return APR_OK;
}

enum { WARM_UP_TOKENS = 4 };

static apr_status run_once(apr_session *session, const apr_speed_options *o, const int32_t *ids, double *prompt_s, double *decode_s,
                           bool *finite, apr_error *err)
{
    apr_best best = {.n_wanted = 1}; /* what a generation asks of each token */
    const apr_eval_output wanted = {.best = &best};

    apr_session_reset(session);
    const double begin = apr_seconds_now();
    if (o->n_prompt > 0) APR_TRY(apr_session_eval(session, ids, (size_t)o->n_prompt, &wanted, err));
    const double prompted = apr_seconds_now();
    if (o->n_prompt > 0) APR_TRY(look(session, finite, err));
    const double again = apr_seconds_now(); /* looking is not reading */
    for (int64_t i = 0; i < o->n_tokens; i++) APR_TRY(apr_session_eval(session, ids + o->n_prompt + i, 1, &wanted, err));
    *decode_s = apr_seconds_now() - again;
    *prompt_s = prompted - begin;
    return look(session, finite, err);
}

apr_status apr_speed_measure(apr_session *session, const apr_speed_options *o, apr_speed *speed, apr_error *err)
{
    const int64_t n_ctx = apr_session_plan(session)->n_ctx;
    double ignored[2];

    *speed = (apr_speed){.finite = true};
    if (o->n_prompt < 0 || o->n_tokens < 0 || (o->n_prompt == 0 && o->n_tokens == 0) || o->n_runs < 1 || o->n_runs > APR_SPEED_MOST_RUNS)
        return apr_fail(err, APR_E_USAGE, "there is nothing to measure: no prompt, and no tokens behind it");
    if (o->n_prompt > n_ctx || o->n_tokens > n_ctx - o->n_prompt)
        return apr_fail(err, APR_E_USAGE, "a prompt of %lld tokens and %lld behind it do not fit the context of %lld",
                        (long long)o->n_prompt, (long long)o->n_tokens, (long long)n_ctx);
    int32_t *const ids = malloc((size_t)(o->n_prompt + o->n_tokens) * sizeof *ids);
    if (ids == NULL) return apr_no_memory(err, "the tokens to measure with");
    fill_ids(ids, o->n_prompt + o->n_tokens, apr_session_program(session)->vocab_size, o->seed);
    apr_speed_options warm_up = *o;
    if (warm_up.n_tokens > WARM_UP_TOKENS) warm_up.n_tokens = WARM_UP_TOKENS;
    apr_status status = run_once(session, &warm_up, ids, &ignored[0], &ignored[1], &speed->finite, err);
    if (status == APR_OK && o->on_run != NULL) o->on_run(o->user, 0, o->n_runs);
    for (int i = 0; i < o->n_runs && status == APR_OK; i++) {
        status = run_once(session, o, ids, &speed->prompt_s[i], &speed->decode_s[i], &speed->finite, err);
        speed->n_runs = i + 1;
        if (o->on_run != NULL) o->on_run(o->user, i + 1, o->n_runs);
    }
    free(ids);
    return status;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

apr_spread apr_speed_rates(int64_t n_tokens, const double *seconds, int n)
{
    double rates[APR_SPEED_MOST_RUNS];

    if (n < 1 || n > APR_SPEED_MOST_RUNS || n_tokens < 1) return (apr_spread){0};
    for (int i = 0; i < n; i++) rates[i] = (double)n_tokens / fmax(seconds[i], 1e-9); /* a clock's tick at least */
    qsort(rates, (size_t)n, sizeof *rates, by_value);
    return (apr_spread){
        .median = n % 2 != 0 ? rates[n / 2] : 0.5 * (rates[n / 2 - 1] + rates[n / 2]), .low = rates[0], .high = rates[n - 1]};
}
