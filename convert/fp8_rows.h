/* convert/fp8_rows.h - gives all FP8 weights of an output the same scale layout.
 *
 * Weights encoded as FP8 get a scale for each row, and config.json states one layout for all FP8 weights. Weights that are already FP8
 * with a scale for each block are therefore decoded and encoded again. */
#ifndef APR_CONVERT_FP8_ROWS_H
#define APR_CONVERT_FP8_ROWS_H

#include "quant/recipe.h"

/* If the recipe of `view` encodes any tensor as FP8: tensors that it would keep with block scales become float32 in the view. *n_tensors
 * is how many; if it is not 0, make the recipe again. */
apr_status apr_fp8_to_row_scales(apr_model *view, const apr_recipe *recipe, size_t *n_tensors, apr_error *err);

#endif
