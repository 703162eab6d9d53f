/* own_text.c - draws a token, evaluates it, draws the next. */
#include "runtime/calibrate/own_text.h"

#include "formats/base/random.h"
#include "runtime/session/sample.h"

#include <inttypes.h>
#include <math.h>

static apr_status write_window(const apr_own_text *how, apr_session *session, apr_sampler *sampler, int64_t first, int32_t *ids,
                               apr_error *err)
{
    const int64_t n_known =
        how->n_tokens_known > 0 && how->n_tokens_known < sampler->vocab_size ? how->n_tokens_known : sampler->vocab_size;

    apr_session_reset(session);
    const int64_t drawn = how->has_begin && how->window > 1; /* index of the token that is drawn uniformly */
    if (how->has_begin) ids[0] = how->begin;
    if (drawn || !how->has_begin) ids[drawn] = (int32_t)(apr_random(&sampler->state) % (uint64_t)n_known);
    if (drawn) APR_TRY(apr_session_eval(session, &ids[0], 1, NULL, err));
    for (int64_t i = drawn + 1; i < how->window; i++) {
        APR_TRY(apr_session_eval(session, &ids[i - 1], 1, NULL, err));
        APR_TRY(apr_session_read_logits(session, err));
        const float *const logits = apr_session_logits(session);
        ids[i] = apr_sample(sampler, logits);
        if (!isfinite(logits[ids[i]]))
            return apr_fail(err, APR_E_NO, "the model cannot write a calibration text: after token %" PRId64 " its logits are not finite",
                            first + i - 1);
        apr_progress_report(how->progress, (uint64_t)(first + i), (uint64_t)(how->n_windows * how->window), "writing, tokens");
    }
    return APR_OK;
}

apr_status apr_own_text_write(const apr_own_text *how, apr_session *session, int32_t *ids, apr_error *err)
{
    const apr_sample_options options = {.temperature = 1.0f, .top_p = 1.0f, .seed = how->seed};
    apr_sampler sampler;
    apr_status status = apr_sampler_open(&sampler, apr_session_program(session)->vocab_size, &options, err);

    if (status == APR_OK && how->n_before > 0) sampler.state = how->state;
    for (int64_t i = how->n_before; i < how->n_windows && status == APR_OK; i++) {
        status = write_window(how, session, &sampler, i * how->window, ids + i * how->window, err);
        if (status == APR_OK && how->on_window != NULL) status = how->on_window(how->user, i + 1, sampler.state, err);
    }
    apr_sampler_close(&sampler);
    apr_session_reset(session);
    return status;
}
