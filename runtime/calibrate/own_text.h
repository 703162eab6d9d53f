/* runtime/calibrate/own_text.h - text that the model generates itself, for calibration without a given text.
 *
 * Each window starts with an empty context, and with the begin token if the model asks for one. The first token is drawn uniformly from
 * the whole vocabulary, the next ones from the model's probabilities (temperature 1, no cut-off). So the inputs are those that the model
 * meets in use, in the proportions that it has learned. The same seed, model and backend give the same ids.
 *
 * Many windows are written at once, as sequences of one session: each pass over the weights gives all of them their next token. Each
 * window has a random generator of its own, seeded from (seed, index of the window). So the ids do not depend on how many windows are
 * written at once, nor on where an earlier run ended. */
#ifndef APR_RUNTIME_CALIBRATE_OWN_TEXT_H
#define APR_RUNTIME_CALIBRATE_OWN_TEXT_H

#include "formats/base/progress.h"
#include "runtime/session/session.h"

/* Most windows at once. One pass over the weights serves all of them; on the host more of them gain little, and a run that is ended would
 * lose more unfinished ones. */
enum { APR_OWN_TEXT_AT_ONCE = 32, APR_OWN_TEXT_AT_ONCE_ON_HOST = 8 };

typedef struct apr_own_text {
    int64_t n_windows, window; /* tokens of a window: at most the session's context */
    int64_t n_tokens_known;    /* only ids below this have a text; 0: all */
    uint64_t seed;
    bool has_begin; /* each window begins with `begin` */
    int32_t begin;
    const apr_progress *progress; /* of tokens; may be NULL */
    int64_t n_before;             /* to resume: number of windows already in `ids` */
    /* Called when windows are complete, with the number of all that are, from the first on. May be NULL. */
    apr_status (*on_windows)(void *user, int64_t n_windows, apr_error *err);
    void *user;
} apr_own_text;

/* Opens a session for as many windows at once as fit, at most `most` (0: as the enum says). On the host several must fit into
 * options->budget_bytes (0: this machine's memory), and one is always tried; on a device all must fit. options: place and types; context,
 * batch, logits and sequences are set here. Otherwise the errors of apr_session_open. */
apr_status apr_own_text_open(apr_session **session, const apr_own_text *how, const apr_model *model, const apr_session_options *options,
                             int64_t most, apr_error *err);

/* What it opens. */
typedef struct apr_own_text_plan {
    int64_t n_at_once;                 /* windows */
    uint64_t host_bytes, device_bytes; /* by the session's plan, without the host's weights, a device's context and its headroom */
    bool fits;                         /* false: not even one window does */
} apr_own_text_plan;

apr_status apr_own_text_forecast(apr_own_text_plan *plan, const apr_own_text *how, const apr_model *model,
                                 const apr_session_options *options, int64_t most, apr_error *err);

/* ids: [n_windows * window]. Writes as many windows at once as the session has sequences. Resets all of them before and after.
 * APR_E_NO: a logit is not finite, with its position; otherwise the errors of apr_session_eval and apr_session_step. */
apr_status apr_own_text_write(const apr_own_text *how, apr_session *session, int32_t *ids, apr_error *err);

#endif
