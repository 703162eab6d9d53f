/* kept_sums.h - keeps the sums of the last finished pass over the calibration text in OUT.resume, so that a resumed run need not repeat
 * that pass. Only for sums on the host. */
#ifndef APR_TOOLS_KEPT_SUMS_H
#define APR_TOOLS_KEPT_SUMS_H

#include "tools/engine/quantize/feedback_internal.h"

/* Writes the sums of the wanted layer inputs; replaces what was kept before. */
apr_status apr_kept_sums_write(const apr_feedback_run *run, const bool *wanted, apr_error *err);

/* Reads the sums of wanted layer inputs that a run with the same model, text and options kept, and marks them as summed. Incomplete or
 * damaged records are ignored. */
apr_status apr_kept_sums_read(apr_feedback_run *run, const bool *wanted, apr_error *err);

#endif
