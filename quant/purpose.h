/* quant/purpose.h - what a tensor is for, by its name: recipes decide by purpose, not by name.
 *
 * Both dialects are known ("self_attn.v_proj.weight", "attn_v.weight"). A name that no rule knows is OTHER and is left as
 * it is: nothing is guessed. */
#ifndef APR_QUANT_PURPOSE_H
#define APR_QUANT_PURPOSE_H

#include "formats/model/model.h"

typedef enum {
    APR_FOR_OTHER,     /* unknown: kept */
    APR_FOR_EMBEDDING, /* token id -> row */
    APR_FOR_HEAD,      /* hidden state -> logits */
    APR_FOR_ATTN_Q,
    APR_FOR_ATTN_K,
    APR_FOR_ATTN_V,
    APR_FOR_ATTN_QKV, /* fused; counts as a V in llama.cpp's mixtures */
    APR_FOR_ATTN_OUT,
    APR_FOR_ATTN_GATE,
    APR_FOR_FFN_GATE,
    APR_FOR_FFN_UP,
    APR_FOR_FFN_DOWN, /* dense, experts and shared experts alike */
    APR_FOR_ROUTER,   /* chooses experts: tiny and sensitive */
    APR_FOR_SMALL,    /* norms, biases, convolutions, decay rates, position tables: never quantized */
    APR_FOR_COUNT
} apr_purpose;

typedef struct apr_purpose_of_tensor {
    apr_purpose purpose;
    int64_t layer; /* -1: outside the layers */
} apr_purpose_of_tensor;

apr_purpose_of_tensor apr_find_purpose(const apr_tensor *tensor);
const char *apr_purpose_name(apr_purpose purpose);

#endif
