/* quant/mixtures.h - the table of named mixtures. */
#ifndef APR_QUANT_MIXTURES_H
#define APR_QUANT_MIXTURES_H

#include "formats/number/dtype.h"
#include "quant/role.h"

/* The places of a role's tensors, in the order of the layers, that a rule is for. EIGHTHS is llama.cpp's use_more_bits(i, n): the first and
 * last eighth and every third between. (llama.cpp, src/llama-quant.cpp, llama_tensor_get_type_impl) */
typedef enum apr_mixture_place {
    APR_PLACE_ALL,
    APR_PLACE_EIGHTHS,
    APR_PLACE_FIRST_TWO,
    APR_PLACE_FIRST_FOUR,
    APR_PLACE_FIRST_EIGHTH,
    APR_PLACE_FIRST_SIXTEENTH,
    APR_PLACE_MIDDLE, /* without the first and the last eighth */
} apr_mixture_place;

/* The models that a rule is for. */
typedef enum apr_mixture_condition {
    APR_FOR_ALL,
    APR_FOR_SHARED_HEADS,  /* four or more query heads for each key and value head */
    APR_FOR_NO_IMPORTANCE, /* encoded without an importance matrix */
    APR_FOR_EIGHT_EXPERTS,
    APR_FOR_MANY_EXPERTS,  /* four or more */
    APR_FOR_OTHER_EXPERTS, /* a number of experts that is not eight, or none */
} apr_mixture_condition;

/* Tensors of a role (ATTN_V: also fused ones) that get another type than the mixture's base. */
typedef struct apr_mixture_rule {
    apr_tensor_role role;
    apr_mixture_place place;
    apr_mixture_condition condition;
    apr_dtype to;
} apr_mixture_rule;

typedef struct apr_mixture {
    const char *name, *about;
    apr_dtype base;                /* attention and feed-forward matrices */
    apr_dtype embedding;           /* untied */
    apr_dtype head;                /* and tied embeddings */
    const apr_mixture_rule *rules; /* the first one that holds decides; the last one has type APR_DTYPE_COUNT. NULL: none; else also
                                      llama.cpp's rules for 70B and for eight experts hold, but for IQ1 and IQ2 */
    int64_t file_type;             /* general.file_type, -1 none */
} apr_mixture;

const apr_mixture *apr_mixture_find(const char *name); /* NULL: unknown */

#endif
