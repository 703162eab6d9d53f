/* runtime/calibrate/own_text.h - a text that a model writes itself: to calibrate it by where no text is given.
 *
 * Each window begins from nothing, with the begin token where the model asks for one. Then comes a token out of the whole vocabulary, all
 * equally likely, and it goes on with tokens drawn as likely as
 * the model thinks they are (temperature 1, nothing cut off). So its inputs are those that the model meets when it is used, in the
 * proportions that it has learned, and nothing from outside is needed. The same seed, model and backend give the same ids.
 *
 * It costs the decoding of every token, one by one; a text that is read costs a prompt. */
#ifndef APR_RUNTIME_CALIBRATE_OWN_TEXT_H
#define APR_RUNTIME_CALIBRATE_OWN_TEXT_H

#include "formats/base/progress.h"
#include "runtime/session/session.h"

typedef struct apr_own_text {
    int64_t n_windows, window; /* tokens of a window: at most the session's context */
    int64_t n_tokens_known;    /* ids below this have a text; 0: all ids of the program */
    uint64_t seed;
    bool has_begin; /* each window begins with this token: */
    int32_t begin;
    const apr_progress *progress; /* of tokens; NULL: nobody listens */
    /* Another run wrote this many windows, which are in ids already, and left the generator so; 0: none. */
    int64_t n_before;
    uint64_t state;
    /* After each window: how many there are, and the generator's state, for a run that goes on. NULL: not told. */
    apr_status (*on_window)(void *user, int64_t n_windows, uint64_t state, apr_error *err);
    void *user;
} apr_own_text;

/* ids: room for n_windows * window. The session begins anew before and afterwards. APR_E_NO: a logit that is no number, with the place;
 * otherwise what apr_session_eval answers. */
apr_status apr_own_text_write(const apr_own_text *how, apr_session *session, int32_t *ids, apr_error *err);

#endif
