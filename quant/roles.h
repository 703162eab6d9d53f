/* quant/roles.h - what a tensor is for, by its name: recipes decide by role, not by name.
 *
 * Both dialects are known ("self_attn.v_proj.weight", "attn_v.weight"). A name that no rule knows is OTHER and is left as
 * it is: nothing is guessed. */
#ifndef APR_QUANT_ROLES_H
#define APR_QUANT_ROLES_H

#include "formats/model.h"

typedef enum {
    APR_ROLE_OTHER,     /* unknown: kept */
    APR_ROLE_EMBEDDING, /* token id -> row */
    APR_ROLE_HEAD,      /* hidden state -> logits */
    APR_ROLE_ATTN_Q,
    APR_ROLE_ATTN_K,
    APR_ROLE_ATTN_V,
    APR_ROLE_ATTN_QKV, /* fused; counts as a V in llama.cpp's mixtures */
    APR_ROLE_ATTN_OUT,
    APR_ROLE_ATTN_GATE,
    APR_ROLE_FFN_GATE,
    APR_ROLE_FFN_UP,
    APR_ROLE_FFN_DOWN, /* dense, experts and shared experts alike */
    APR_ROLE_ROUTER,   /* chooses experts: tiny and sensitive */
    APR_ROLE_SMALL,    /* norms, biases, convolutions, decay rates, position tables: never quantized */
    APR_ROLE_COUNT
} apr_role;

typedef struct apr_role_of_tensor {
    apr_role role;
    int64_t layer; /* -1: outside the layers */
} apr_role_of_tensor;

apr_role_of_tensor apr_find_role(const apr_tensor *tensor);
const char *apr_role_name(apr_role role);

#endif
