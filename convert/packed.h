/* packed.h - folders in a quantized layout for servers: the tensors of each matrix, and what config.json says. Parts of convert.c's plan,
 * for a recipe with a packed target. */
#ifndef APR_CONVERT_PACKED_H
#define APR_CONVERT_PACKED_H

#include "convert/convert.h"

/* Sets the type of scales that have the model's own. */
apr_status apr_packed_choose_scales(apr_conversion *conversion, apr_error *err);
/* Adds the tensors of a packed line to the layout, and their items. */
apr_status apr_lay_out_packed(apr_conversion *conversion, const apr_recipe_line *line, apr_error *err);
/* Describes the quantization in the layout's config.json. */
apr_status apr_restate_packed(apr_conversion *conversion, const char *torch_dtype, apr_error *err);
/* Notes what users of the folder must know. */
apr_status apr_packed_notes(apr_conversion *conversion, apr_error *err);

#endif
