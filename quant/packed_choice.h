/* packed_choice.h - which matrices of a recipe become several tensors in a layout for servers (formats/packed/packed_layouts.h): matrices of
 * the text model's layers that servers can load. Everything else stays as floats. */
#ifndef APR_QUANT_PACKED_CHOICE_H
#define APR_QUANT_PACKED_CHOICE_H

#include "quant/mixtures.h"
#include "quant/recipe.h"

/* Embedding and head are kept. */
apr_mixture apr_packed_mixture(const apr_packed_target *target);

/* The line has what the mixture gave it. True: it is packed, and nothing else is to decide. False: it is kept, as a float. */
bool apr_choose_packed(const apr_model *model, const apr_packed_target *target, apr_recipe_line *line);

/* After all lines are chosen, in the order of the model's tensors: matrices whose shape servers cannot take are kept, and with them those
 * that are fused with them; finds which codes can be copied. APR_E_UNSUPPORTED: a matrix would lose precision twice, and requantizing is
 * not allowed. */
apr_status apr_settle_packed(apr_recipe *recipe, const apr_model *model, bool allow_requantize, apr_error *err);

/* Bytes of the matrix's tensors. */
uint64_t apr_packed_bytes(const apr_packed_target *target, const apr_tensor *tensor);

#endif
