/* convert/mmproj.h - the vision tower of a checkpoint as llama.cpp's second GGUF: general.type mmproj, general.architecture clip.
 *
 * Tensors, types and keys are those of llama.cpp's convert_hf_to_gguf.py --mmproj. The text part is an output of its own
 * (convert/convert.h); both may be planned from one source. */
#ifndef APR_CONVERT_MMPROJ_H
#define APR_CONVERT_MMPROJ_H

#include "convert/convert.h"

/* Plans the file; apr_conversion_run writes it. `type`: f32, f16 or bf16 for matrices; any other text, or NULL: the type in which most of
 * the tower is stored, f16 if that is none of these. The source is a checkpoint, or an APR file made from one. APR_E_UNSUPPORTED: its model
 * type has no such file, or a tensor of the tower has no name there. APR_E_DAMAGED: config.json or preprocessor_config.json lacks what the
 * file states, or the tower is not complete. Close the conversion also after a failure. */
apr_status apr_mmproj_plan(apr_conversion *conversion, const apr_model *source, const char *type, apr_error *err);

#endif
