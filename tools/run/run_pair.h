/* run_pair.h - two models that are run beside each other, tensor by tensor: opened, and brought to one dialect.
 *
 * A GGUF of some families has value heads in another order, latents or projections in other pieces than a checkpoint, and so has what was
 * made of either. Then the reference is brought to the model's ways; where its blocks do not allow that, the model to the reference's. No
 * number changes. */
#ifndef APR_TOOLS_RUN_PAIR_H
#define APR_TOOLS_RUN_PAIR_H

#include "tools/run/running.h"

/* Opens the files of both, the model's first, and merges the adapters into the reference. Both must be closed, also when this fails.
 * APR_E_UNSUPPORTED: blocks of both would break. */
apr_status apr_run_pair_open_files(apr_running *truth, const char *truth_path, const apr_strings *lora, apr_running *other,
                                   const char *path, apr_error *err);

#endif
