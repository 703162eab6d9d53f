/* quant/purpose.h - the role of a tensor, found by its name; recipes choose types by role.
 *
 * The spec of the model's family states it (formats/model/family.h). If there is no spec, or it does not name the tensor, the
 * suffix of the name decides, in both namings ("self_attn.v_proj.weight", "attn_v.weight"). An unknown name is OTHER, and the
 * tensor is not quantized by its name. */
#ifndef APR_QUANT_PURPOSE_H
#define APR_QUANT_PURPOSE_H

#include "formats/model/tensor_names.h"

typedef struct apr_purpose_of_tensor {
    apr_purpose purpose;
    int64_t layer; /* -1: outside the layers */
} apr_purpose_of_tensor;

/* family: the spec of the tensor's model, or NULL. */
apr_purpose_of_tensor apr_find_purpose(const apr_family *family, const apr_tensor *tensor);
/* By the suffix of the name only. */
apr_purpose apr_purpose_of_ending(const char *name);
const char *apr_purpose_name(apr_purpose purpose);

#endif
