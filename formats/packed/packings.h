/* packings.h - finds the matrices of a checkpoint that are packed into several tensors, and describes each (formats/tensor/packing.h).
 *
 *     X.qweight        .scales, .qzeros, .g_idx                                  GPTQ (rows of X.qweight go along the inputs), AWQ
 *     X.weight_packed  .weight_scale, .weight_shape, .weight_zero_point,         compressed-tensors: integers in I32; in U8 NVFP4 with
 *                      .weight_g_idx, .weight_global_scale                       a global scale, MXFP4 without
 *     X.weight         .weight_scale, .weight_scale_2, .weight_zero_point        INT8; in U8 modelopt's NVFP4, MXFP4; F8_E4M3 with
 *                                                                                scales in U8: MXFP8
 *     X.weight         .weight.absmax, .quant_map, .nested_*, .quant_state.*     bitsandbytes nf4, fp4
 *
 * The tensors decide whether a matrix is packed. config.json decides what shapes cannot tell (GPTQ's two ways to store zero points, groups
 * that do not divide a row). APR_E_DAMAGED: both disagree, or a part is missing, or has another type or shape than the others need. Unknown
 * layouts (HQQ, EXL2, AQLM, GPTQ for marlin, AWQ for gemv, weights with scales of their inputs, LLM.int8, ...) are not bound: they are
 * copied unchanged, and apr_refuse_packed refuses to decode them. gpt-oss' blocks are not bound either: steps convert them to MXFP4. */
#ifndef APR_FORMATS_HF_PACKINGS_H
#define APR_FORMATS_HF_PACKINGS_H

#include "formats/tensor/packing.h"

/* Fills model->packings, in the order of the tensors that hold the codes. Names must be indexed and model->quantization read. Allocates in
 * the model's arena. */
apr_status apr_bind_packings(apr_model *model, apr_error *err);

#endif
