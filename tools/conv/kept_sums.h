/* kept_sums.h - the sums of a finished pass of the calibration text, kept in OUT.resume: a run that is ended does not read the text again for
 * what was summed up last. On the host alone; a GPU's sums stay there. */
#ifndef APR_TOOLS_KEPT_SUMS_H
#define APR_TOOLS_KEPT_SUMS_H

#include "tools/conv/feedback_parts.h"

/* Of the feeds that are marked; takes the place of what was kept before. */
apr_status apr_kept_sums_write(const apr_feedback_run *run, const bool *wanted, apr_error *err);

/* Fills the sums of feeds that are marked and were kept by a run of the same model, text and options, and marks them as summed. What is not
 * whole is not taken. */
apr_status apr_kept_sums_read(apr_feedback_run *run, const bool *wanted, apr_error *err);

#endif
