/* kept_text.h - keeps a text that the model generates in OUT.resume while it grows, so that a resumed run continues it. */
#ifndef APR_ENGINE_KEPT_TEXT_H
#define APR_ENGINE_KEPT_TEXT_H

#include "runtime/calibrate/own_text.h"
#include "tools/engine/listener.h"

typedef struct apr_kept_text {
    const char *target; /* OUT */
    const apr_own_text *how;
    int32_t *ids; /* of all windows */
    const apr_listener *listener;
    char *terms;     /* text lines that identify the model and the text's length; owned */
    int64_t n_saved; /* tokens on disk */
} apr_kept_text;

/* Reads the ids that an earlier run of the same model and text kept, and sets *how to continue after them. Sets a callback in *how that saves
 * the text after every 1,024 tokens or more. The caller sets target, how, ids and listener. */
apr_status apr_kept_text_open(apr_kept_text *kept, apr_own_text *how, apr_error *err);
void apr_kept_text_close(apr_kept_text *kept);

#endif
