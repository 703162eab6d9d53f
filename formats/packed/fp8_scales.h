/* fp8_scales.h - finds the scales of FP8 weights. */
#ifndef APR_FORMATS_FP8_SCALES_H
#define APR_FORMATS_FP8_SCALES_H

#include "formats/tensor/model.h"

/* Binds each FP8 weight X.weight to its X.weight_scale_inv or X.weight_scale, with the block size that config.json's
 * quantization_config states (never derived from shapes). Every reader calls it. */
apr_status apr_bind_scales(apr_model *model, const apr_attachment *config, apr_error *err);

#endif
