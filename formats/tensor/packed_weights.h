/* packed_weights.h - checkpoint tensors that are parts of packed weights, or accompany weights, under their own names.
 *
 * Packed weights (GPTQ, AWQ, NVFP4, nf4, INT8, ...) consist of several tensors that mean nothing on their own. Those with a known layout
 * are bound (model->packings, formats/packed/packings.h) and read as matrices. The others (HQQ, EXL2, AQLM, LLM.int8, GPTQ for marlin, ...) are
 * copied between safetensors and APR byte for byte, but never decoded. Code that would compute with weights calls apr_refuse_packed.
 *
 * gpt-oss' MXFP4 is expressed in ggml's type without arithmetic. X_scales [.., n], after "unsqueeze:0", and X_blocks [.., n, 16] are, in
 * this order, the parts of "join:0,1 pack_mxfp4" (formats/tensor/step.h).
 *
 * Activation scales accompany FP8 weights for hardware that multiplies FP8 by FP8. This project decodes weights and multiplies floats,
 * so the scales have no effect. They are copied with weights that stay FP8. If the weights change, they are left out and a message names
 * them. */
#ifndef APR_FORMATS_PACKED_WEIGHTS_H
#define APR_FORMATS_PACKED_WEIGHTS_H

#include "formats/tensor/model.h"

/* The first tensor that is a part of packed weights that are not bound, and the name of the layout; NULL: there is none. In a model
 * without packings all parts count. The tensors decide, whatever config.json says. */
const apr_tensor *apr_find_packed(const apr_model *model, const char **layout);

/* APR_E_UNSUPPORTED with a message that names layout and tensor, if the model has packed weights. cannot: "run", "quantized", ... */
apr_status apr_refuse_packed(const apr_model *model, const char *cannot, apr_error *err);

/* Suffixes of the names of the parts of the packed weight "X.weight", each appended to X. NULL-terminated. */
extern const char *const apr_packed_suffixes[];

/* Is `name` a scale of activations, keys or values? `weight` (a buffer of n_bytes; may be NULL) receives the name of the weight that it
 * accompanies. */
bool apr_is_activation_scale(const char *name, char *weight, size_t n_bytes);

#endif
