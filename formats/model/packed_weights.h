/* packed_weights.h - tensors of a checkpoint that are parts of weights, or serve them, under names of their own.
 *
 * Packed weights (GPTQ, AWQ, NVFP4, nf4, INT8, ...) lie in several tensors that mean nothing one by one. Those whose layout is known are
 * bound (model->packings, formats/hf/packings.h) and read as matrices. The others (HQQ, EXL2, AQLM, LLM.int8, GPTQ for marlin, ...) are
 * carried between safetensors and APR byte for byte, but nothing here decodes them: whoever would compute asks apr_refuse_packed.
 *
 * gpt-oss' MXFP4 is said in ggml's type without arithmetic: X_blocks [.., n, 16] and X_scales [.., n] are, with
 * "unsqueeze:0" before the scales, the parts of "join:0,1 pack_mxfp4" (formats/model/step.h), in the order scales, blocks.
 *
 * Activation scales stand beside FP8 weights for machines that multiply FP8 by FP8. This house decodes weights and multiplies
 * floats, so they change nothing; they are carried with weights that stay FP8 and left out, by name, when the weights change. */
#ifndef APR_FORMATS_PACKED_WEIGHTS_H
#define APR_FORMATS_PACKED_WEIGHTS_H

#include "formats/model/model.h"

/* The first tensor that is a part of packed weights which are not bound, and what they are called, or NULL: there are none. In a view
 * where the parts stand for themselves (no packings) all of them count. The tensors decide, whatever config.json says. */
const apr_tensor *apr_find_packed(const apr_model *model, const char **layout);

/* APR_E_UNSUPPORTED with a sentence that names layout and tensor, when there are packed weights. cannot: "run", "quantized", ... */
apr_status apr_refuse_packed(const apr_model *model, const char *cannot, apr_error *err);

/* What the parts of the packed weight "X.weight" are called: X and one of these. NULL-terminated. */
extern const char *const apr_packed_endings[];

/* Is `name` a scale of activations, keys or values? Then `weight` (n_bytes of room; may be NULL) is the name of the weight it
 * stands beside. */
bool apr_is_activation_scale(const char *name, char *weight, size_t n_bytes);

#endif
