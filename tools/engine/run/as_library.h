/* as_library.h - a published quantized model with the values that its own library computes (formats/tensor/library_type.h). */
#ifndef APR_ENGINE_AS_LIBRARY_H
#define APR_ENGINE_AS_LIBRARY_H

#include "tools/engine/run/running.h"

/* Are there matrices that are read as float32 products and that their library rounds? `type` (may be NULL): to what, "bf16". */
bool apr_running_rounds(const apr_running *running, const char **type);

/* Is there memory for it? True if the system does not say. */
bool apr_running_can_round(const apr_running *running);

/* Rounds those matrices, which takes 2 bytes of host memory per number. The session is closed; the caller opens it again. */
apr_status apr_running_round(apr_running *running, apr_error *err);

#endif
