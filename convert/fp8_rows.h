/* convert/fp8_rows.h - one layout of FP8 scales for all that is FP8 in an output.
 *
 * What is encoded as FP8 here gets a scale for each row, and config.json then says so of all FP8 weights. Those that are FP8 already with a
 * scale for each block cannot stay: they are decoded and encoded with the others. */
#ifndef APR_CONVERT_FP8_ROWS_H
#define APR_CONVERT_FP8_ROWS_H

#include "quant/recipe.h"

/* If the recipe of `view` encodes any tensor as FP8: those that it keeps with scales of blocks become float32 in the view. *n_tensors says
 * how many did; where there are some, the recipe must be made again. */
apr_status apr_fp8_in_rows(apr_model *view, const apr_recipe *recipe, size_t *n_tensors, apr_error *err);

#endif
