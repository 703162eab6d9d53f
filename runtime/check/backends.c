/* backends.c - opens the reference backend for a session's model and compares the two. */
#include "runtime/check/backends.h"

#include <stdio.h>

/* Opens the reference backend on the same model with the sizes of the same plan. */
static apr_status open_ref(const apr_session *session, apr_session **ref, apr_error *err)
{
    const apr_plan *const plan = apr_session_plan(session);
    apr_session_options options = apr_session_defaults;

    options.n_ctx = plan->n_ctx;
    options.n_batch = plan->n_batch;
    options.n_logits = plan->n_logits;
    options.kv_dtype = plan->kv_dtype;
    options.backend = &apr_float64_backend;
    return apr_session_open(ref, apr_trace_model(session), &options, err);
}

apr_status apr_backends_parity(apr_session *session, const int32_t *ids, int64_t n_ids, apr_parity_options *options,
                               apr_parity_result *result, apr_error *err)
{
    apr_session *ref = NULL;

    *result = (apr_parity_result){0};
    options->weights = NULL;
    options->fp16_above = apr_trace_fp16_above(session);
    APR_TRY(open_ref(session, &ref, err));
    const apr_status status = apr_parity_run(ref, session, ids, n_ids, options, result, err);
    apr_session_close(ref);
    return status;
}

char *apr_parity_sentence(char *text, size_t capacity, const apr_parity_result *result)
{
    char layer[64] = "";
    const apr_difference *const d = &result->first.difference;

    if (result->first.layer >= 0) snprintf(layer, sizeof layer, "layer %d, ", result->first.layer);
    const int n =
        snprintf(text, capacity, "%s%s '%s' at position %lld (%lld token%s): ", layer, apr_op_name(result->first.kind), result->first.name,
                 (long long)result->first.position, (long long)result->first.n_tokens, result->first.n_tokens == 1 ? "" : "s");
    if (n < 0 || (size_t)n >= capacity) return text;
    if (!d->finite) snprintf(text + n, capacity - (size_t)n, "number %lld is not finite", (long long)d->largest_at);
    else if (!(d->relative <= result->first.bound.relative))
        snprintf(text + n, capacity - (size_t)n, "relative error %.3g where %.3g is allowed (%s)", d->relative,
                 result->first.bound.relative, result->first.bound.reason);
    else
        snprintf(text + n, capacity - (size_t)n, "number %lld is off by %.3g times the row's root mean square where %.3g is allowed (%s)",
                 (long long)d->largest_at, d->peak, result->first.bound.peak, result->first.bound.reason);
    return text;
}

char *apr_parity_extent_text(char *text, size_t capacity, const apr_parity_result *result)
{
    char cache[96] = "", share[32] = "all";

    if (result->n_filled > 0)
        snprintf(cache, sizeof cache, " (before it %lld evaluated tokens and %lld cells copied from them)", (long long)result->n_evaluated,
                 (long long)result->n_filled);
    if (result->share < 1.0) snprintf(share, sizeof share, "%.3g %% of", 100.0 * result->share);
    snprintf(text, capacity, "%lld%s; %s products in float64", (long long)result->last_position, cache, share);
    return text;
}

apr_status apr_backends_on_text(apr_session *session, const int32_t *ids, int64_t n_ids,
                                void (*on_rows)(void *user, int64_t n_done, int64_t n_rows), void *user, apr_divergence *d, apr_error *err)
{
    const int64_t n_ctx = apr_session_plan(session)->n_ctx;
    apr_session *ref = NULL;

    *d = (apr_divergence){0};
    APR_TRY(open_ref(session, &ref, err));
    const apr_status status =
        apr_compare_models(ref, session, ids, n_ids, n_ctx < APR_BACKENDS_WINDOW ? n_ctx : APR_BACKENDS_WINDOW, on_rows, user, d, err);
    apr_session_close(ref);
    return status;
}

const double apr_backends_max_kl = 1e-4, apr_backends_min_same_top = 0.995;

bool apr_backends_agree(const apr_divergence *d) { return d->mean <= apr_backends_max_kl && d->same_top >= apr_backends_min_same_top; }
