/* quant/mixtures.h - the table of named mixtures. */
#ifndef APR_QUANT_MIXTURES_H
#define APR_QUANT_MIXTURES_H

#include "formats/number/dtype.h"
#include "quant/role.h"

/* Which tensors of a class get the mixture's `more` type. EIGHTHS is llama.cpp's use_more_bits(i, n): the first and last eighth
 * and every third between. (llama.cpp, src/llama-quant.cpp, llama_tensor_get_type_impl) */
typedef enum { APR_MORE_NONE, APR_MORE_EIGHTHS, APR_MORE_FIRST_FOUR, APR_MORE_FIRST_EIGHTH } apr_more_rule;

typedef struct apr_mixture {
    const char *name, *about;
    apr_dtype base;      /* attention and feed-forward matrices */
    apr_dtype embedding; /* untied */
    apr_dtype head;      /* and tied embeddings */
    apr_dtype more;      /* for attention V and ffn down where the rules say so */
    apr_more_rule more_v, more_down;
    int64_t file_type; /* general.file_type, -1 none */
} apr_mixture;

const apr_mixture *apr_mixture_find(const char *name); /* NULL: unknown */

#endif
