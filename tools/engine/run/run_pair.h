/* run_pair.h - opens two models that are compared tensor by tensor, in the same naming scheme and layout.
 *
 * In some families a GGUF has value heads in another order than a checkpoint, or latents and projections split in another way; so do files
 * made from either. Then the reference is converted to the model's layout or, if its blocks do not allow that, the model to the
 * reference's. No number changes. */
#ifndef APR_TOOLS_RUN_PAIR_H
#define APR_TOOLS_RUN_PAIR_H

#include "tools/verbs/run/running.h"

/* Opens the files of both, the model's first, and merges the adapters into the reference. Both must be closed, also when this fails.
 * APR_E_UNSUPPORTED: the blocks of both do not allow a conversion. */
apr_status apr_run_pair_open_files(apr_running *reference, const char *reference_path, const apr_strings *lora, apr_running *other,
                                   const char *path, apr_error *err);

#endif
