/* quant/purpose.h - what a tensor is for, by its name: recipes decide by purpose, not by name.
 *
 * The card of the model's family says it (formats/model/family.h). Where there is no card, or none of its tensors is called so, the
 * ending of the name does, in both dialects ("self_attn.v_proj.weight", "attn_v.weight"). A name that nobody knows is OTHER and is
 * left as it is: nothing is guessed. */
#ifndef APR_QUANT_PURPOSE_H
#define APR_QUANT_PURPOSE_H

#include "formats/model/tensor_names.h"

typedef struct apr_purpose_of_tensor {
    apr_purpose purpose;
    int64_t layer; /* -1: outside the layers */
} apr_purpose_of_tensor;

/* family: the card of the tensor's model, or NULL. */
apr_purpose_of_tensor apr_find_purpose(const apr_family *family, const apr_tensor *tensor);
/* By the ending alone. */
apr_purpose apr_purpose_of_ending(const char *name);
const char *apr_purpose_name(apr_purpose purpose);

#endif
