/* kept.h - what a calibration keeps in OUT.resume, so that a resumed run need not repeat it: the text that the model generates, while it
 * grows, and the sums of the last finished pass over the text. */
#ifndef APR_ENGINE_KEPT_H
#define APR_ENGINE_KEPT_H

#include "runtime/calibrate/own_text.h"
#include "tools/engine/listener.h"
#include "tools/engine/quantize/feedback_internal.h"

#include <stdio.h>

typedef struct apr_kept_text {
    const char *target; /* OUT */
    const apr_own_text *how;
    int32_t *ids; /* of all windows */
    const apr_listener *listener;
    char *terms;     /* text lines that identify the model and the text's length; owned */
    int64_t n_saved; /* tokens on disk */
} apr_kept_text;

/* Reads the ids that an earlier run of the same model and text kept, and sets *how to continue after them. Sets a callback in *how that saves
 * the text when windows are complete, after every 1,024 tokens or more. The caller sets target, how, ids and listener. */
apr_status apr_kept_text_open(apr_kept_text *kept, apr_own_text *how, apr_error *err);
void apr_kept_text_close(apr_kept_text *kept);

/* --- sums, only of those on the host --- */

/* Writes the sums of the wanted layer inputs; replaces what was kept before. */
apr_status apr_kept_sums_write(const apr_feedback_run *run, const bool *wanted, apr_error *err);

/* Reads the sums of wanted layer inputs that a run with the same model, text and options kept, and marks them as summed. Incomplete or
 * damaged records are ignored. */
apr_status apr_kept_sums_read(apr_feedback_run *run, const bool *wanted, apr_error *err);

/* --- any file of OUT.resume: terms that identify a run, then what `write` writes --- */

/* Replaces what was kept under that name before; it is on the disk when the call returns. The folder is made if it is missing. */
apr_status apr_kept_write(const char *out, const char *name, const char *terms, size_t n_terms, bool (*write)(void *user, FILE *file),
                          void *user, apr_error *err);
bool apr_kept_exists(const char *out, const char *name);
/* After its terms; NULL: it is missing, or has other terms. The caller closes it. */
FILE *apr_kept_open(const char *out, const char *name, const char *terms, size_t n_terms);
/* Removes the file, and the folder if nothing else is in it. */
void apr_kept_remove(const char *out, const char *name);

#endif
