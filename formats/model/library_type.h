/* library_type.h - which numbers a matrix stands for that is published as codes and scales.
 *
 * One rule for all layouts: a value is the product of code (less its zero point) and scale in float32, as the kernels have it that serve
 * such models. The library that defines a layout may round that product to 16 bits when it decodes: those numbers are right as well.
 *
 *     layout                                  read here as               its library rounds to
 *     integers (GPTQ, AWQ, pack-quantized)    what its library has       the scales' type
 *     nf4, fp4 (bitsandbytes), MXFP4, MXFP8   what its library has       the type stated, BF16
 *     FP8 with scales                         the float32 product        the scales' type where it has 16 bits, else the model's
 *     NVFP4                                   the float32 product        the model's own type
 *
 * Who compares asks here: conversions (what a type cost), `aprconv diff` and `aprrun golden` take either, and say which it was. */
#ifndef APR_FORMATS_LIBRARY_TYPE_H
#define APR_FORMATS_LIBRARY_TYPE_H

#include "formats/model/model.h"

/* The type that the products are rounded to: APR_F16 or APR_BF16; APR_F32: they are not rounded. APR_DTYPE_COUNT: not such a matrix. */
apr_dtype apr_library_type(const apr_model *model, const apr_tensor *tensor);

/* Are the values that are read (kernels/rows.h) the float32 products, and the library's others? */
bool apr_is_read_as_products(const apr_model *model, const apr_tensor *tensor);

/* To that type and back; any other type leaves the value as it is. */
float apr_round_as(apr_dtype type, float value);

#endif
