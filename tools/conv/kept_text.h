/* kept_text.h - the text that a model writes itself, kept in OUT.resume as it grows: a run that is ended goes on from there. */
#ifndef APR_TOOLS_KEPT_TEXT_H
#define APR_TOOLS_KEPT_TEXT_H

#include "runtime/calibrate/own_text.h"

typedef struct apr_kept_text {
    const char *target; /* OUT */
    const apr_own_text *how;
    int32_t *ids;    /* of all windows */
    char *terms;     /* lines: of which model and of how long a text; own */
    int64_t n_saved; /* tokens on the disk */
} apr_kept_text;

/* Reads what an earlier run of the same model and text left (its ids, and in *how where to go on), and has *how tell of each window: every
 * 1,024 tokens or more they are written down. target, how and ids are set by the caller. */
apr_status apr_kept_text_open(apr_kept_text *kept, apr_own_text *how, apr_error *err);
void apr_kept_text_close(apr_kept_text *kept);

#endif
