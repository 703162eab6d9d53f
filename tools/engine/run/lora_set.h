/* lora_set.h - the adapters that a run or a conversion merges into a model: "DIR", or "DIR:FACTOR". */
#ifndef APR_ENGINE_LORA_SET_H
#define APR_ENGINE_LORA_SET_H

#include "convert/adapters.h"

/* Zeros are an empty set; closing it is allowed. */
typedef struct apr_lora_set {
    apr_adapter *adapters;
    apr_adapter_use *uses; /* [n] as apr_merge_adapters takes them */
    const char **texts;    /* [n] "rank 16, alpha 32, scale 2, ..." */
    size_t n;
    apr_arena arena;
} apr_lora_set;

/* APR_E_USAGE: a factor is not a number. After a failure the set must be closed too. */
apr_status apr_lora_set_open(apr_lora_set *set, const char *const *words, size_t n_words, apr_error *err);
void apr_lora_set_close(apr_lora_set *set);

#endif
