/* quant/role.h - the role of a tensor, found by its name; recipes choose types by role.
 *
 * The spec of the model's family states it (formats/shape/family.h). If there is no spec, or it does not name the tensor, the
 * suffix of the name decides, in both namings ("self_attn.v_proj.weight", "attn_v.weight"). An unknown name is OTHER, and the
 * tensor is not quantized by its name. */
#ifndef APR_QUANT_ROLE_H
#define APR_QUANT_ROLE_H

#include "formats/shape/tensor_names.h"

typedef struct apr_tensor_role_of {
    apr_tensor_role role;
    int64_t layer; /* -1: outside the layers */
} apr_tensor_role_of;

/* family: the spec of the tensor's model, or NULL. */
apr_tensor_role_of apr_find_tensor_role(const apr_family *family, const apr_tensor *tensor);
/* By the suffix of the name only. */
apr_tensor_role apr_tensor_role_of_suffix(const char *name);
const char *apr_tensor_role_name(apr_tensor_role role);

#endif
