/* library_type.h - the exact values of a matrix that is published as codes and scales.
 *
 * One rule for all layouts: a value is the product of code (minus its zero point) and scale in float32, as the kernels that serve such
 * models compute it. The library that defines a layout may round that product to 16 bits when it decodes. Both values are accepted.
 *
 *     layout                                  read here as               the library rounds to
 *     integers (GPTQ, AWQ, pack-quantized)    the library's value        the scales' type
 *     nf4, fp4 (bitsandbytes), MXFP4, MXFP8   the library's value        the stated type, BF16
 *     FP8 with scales                         the float32 product        the scales' type where it has 16 bits, else the model's
 *     NVFP4                                   the float32 product        the model's own type
 *
 * Comparisons use this module: conversions (the error of a type), `aprconv diff` and `aprrun golden` accept either value, and state
 * which one it was. */
#ifndef APR_FORMATS_LIBRARY_TYPE_H
#define APR_FORMATS_LIBRARY_TYPE_H

#include "formats/tensor/model.h"

/* The type that the products are rounded to: APR_F16 or APR_BF16. APR_F32: they are not rounded. APR_DTYPE_COUNT: the matrix has no
 * codes and scales. */
apr_dtype apr_reference_type(const apr_model *model, const apr_tensor *tensor);

/* Does kernels/rows.h return the float32 products, where the library rounds them? */
bool apr_is_read_as_products(const apr_model *model, const apr_tensor *tensor);

/* Rounds to APR_F16 or APR_BF16 and converts back; for other types returns the value unchanged. */
float apr_round_as(apr_dtype type, float value);

#endif
