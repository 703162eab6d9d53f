/* convert/rope_tensors.h - rotary tables that GGUF has as tensors and a config.json as numbers. */
#ifndef APR_CONVERT_ROPE_TENSORS_H
#define APR_CONVERT_ROPE_TENSORS_H

#include "formats/model/model.h"

enum { APR_N_ROPE_TENSORS = 2 };

/* rope_freqs.weight of llama 3's and gemma 4's scaling, rope_factors_long and _short of longrope, where they are not there yet. The
 * view has room for them, and its names are indexed. */
apr_status apr_add_rope_tensors(apr_model *view, apr_error *err);

/* Does the scaling in the hyperparameters say what that tensor says? */
bool apr_is_rope_tensor(const apr_model *model, const char *name);

#endif
