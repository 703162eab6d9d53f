/* runtime/calibrate/own_text.h - text that the model generates itself, for calibration without a given text.
 *
 * Each window starts with an empty context, and with the begin token if the model asks for one. The first token is drawn uniformly from
 * the whole vocabulary, the next ones from the model's probabilities (temperature 1, no cut-off). So the inputs are those that the model
 * meets in use, in the proportions that it has learned. The same seed, model and backend give the same ids.
 *
 * Every token is decoded one by one, which costs more than reading a text as a prompt. */
#ifndef APR_RUNTIME_CALIBRATE_OWN_TEXT_H
#define APR_RUNTIME_CALIBRATE_OWN_TEXT_H

#include "formats/base/progress.h"
#include "runtime/session/session.h"

typedef struct apr_own_text {
    int64_t n_windows, window; /* tokens of a window: at most the session's context */
    int64_t n_tokens_known;    /* only ids below this have a text; 0: all */
    uint64_t seed;
    bool has_begin; /* each window begins with `begin` */
    int32_t begin;
    const apr_progress *progress; /* of tokens; may be NULL */
    /* To resume: number of windows already in `ids`, and the generator's state after them; 0: none. */
    int64_t n_before;
    uint64_t state;
    /* Called after each window with the number of windows and the generator's state, for a later resume. May be NULL. */
    apr_status (*on_window)(void *user, int64_t n_windows, uint64_t state, apr_error *err);
    void *user;
} apr_own_text;

/* ids: [n_windows * window]. Resets the session before and after. APR_E_NO: a logit is not finite, with its position; otherwise the
 * errors of apr_session_eval. */
apr_status apr_own_text_write(const apr_own_text *how, apr_session *session, int32_t *ids, apr_error *err);

#endif
