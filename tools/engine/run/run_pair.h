/* run_pair.h - brings two models that are compared tensor by tensor into the same naming scheme and layout.
 *
 * In some families a GGUF has value heads in another order than a checkpoint, or latents and projections split in another way; so do files
 * made from either. Then the reference is converted to the model's layout or, if its blocks do not allow that, the model to the
 * reference's. No number changes. */
#ifndef APR_ENGINE_RUN_PAIR_H
#define APR_ENGINE_RUN_PAIR_H

#include "tools/engine/run/running.h"

/* Both have been read, and adapters are merged into the reference. APR_E_UNSUPPORTED: the blocks of both do not allow a conversion. */
apr_status apr_run_pair_align(apr_running *reference, apr_running *other, apr_error *err);

#endif
