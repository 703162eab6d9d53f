/* as_library.h - reopens a published quantized model with the values that its own library computes (formats/tensor/library_type.h). */
#ifndef APR_TOOLS_AS_LIBRARY_H
#define APR_TOOLS_AS_LIBRARY_H

#include "tools/verbs/run/running.h"

/* Are there matrices that are read as float32 products and that their library rounds? `type` (may be NULL): to what, "bf16". */
bool apr_running_rounds(const apr_running *running, const char **type);

/* Is there memory for it? True if the system does not say. */
bool apr_running_can_round(const apr_running *running);

/* Reopens the session with those matrices rounded, which takes 2 bytes of host memory per number. The model stays rounded. */
apr_status apr_running_round(apr_running *running, const apr_run_options *options, int64_t n_logits, apr_error *err);

#endif
