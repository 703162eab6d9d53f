/* convert/rope_tensors.h - rotary tables that GGUF stores as tensors and config.json as numbers. */
#ifndef APR_CONVERT_ROPE_TENSORS_H
#define APR_CONVERT_ROPE_TENSORS_H

#include "formats/tensor/model.h"

enum { APR_N_ROPE_TENSORS = 2 };

/* Adds missing tables: rope_freqs.weight for the scaling of llama 3 and gemma 4, rope_factors_long and _short for longrope. The
 * view must have capacity for them, and its names must be indexed. */
apr_status apr_add_rope_tensors(apr_model *view, apr_error *err);

/* Do the scaling hyperparameters contain the data of that tensor? */
bool apr_is_rope_tensor(const apr_model *model, const char *name);

#endif
