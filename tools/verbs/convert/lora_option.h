/* lora_option.h - the repeatable option "--lora DIR[:FACTOR]": opens the adapters and prints them. */
#ifndef APR_TOOLS_LORA_OPTION_H
#define APR_TOOLS_LORA_OPTION_H

#include "convert/adapters.h"
#include "tools/cli/cli.h"

/* A row of an option table; `member` is an apr_strings of `type`, `whom` names what adapters are merged into: "the weights". */
#define APR_LORA_OPTION(type, member, whom)                                                                                                \
    {                                                                                                                                      \
        "lora", 0, APR_OPTION_LIST, "DIR[:FACTOR]", NULL,                                                                                  \
            "merge the LoRA adapter in DIR (or a GGUF) into " whom ", scaled by FACTOR (default 1); several add up", APR_TO(type, member), \
            .group = "Adapters"                                                                                                            \
    }

/* Zeros are an empty set; closing it is allowed. */
typedef struct apr_lora_set {
    apr_adapter *adapters;
    apr_adapter_use *uses; /* [n] as apr_merge_adapters takes them */
    const char **texts;    /* [n] "rank 16, alpha 32, scale 2, ..." */
    size_t n;
    apr_arena arena;
} apr_lora_set;

/* APR_E_USAGE: a factor is not a number. After a failure the set must be closed too. */
apr_status apr_lora_set_open(apr_lora_set *set, const apr_strings *words, apr_error *err);
void apr_lora_set_close(apr_lora_set *set);

void apr_lora_set_print(const apr_lora_set *set, FILE *out); /* a line for each adapter */
void apr_lora_set_json(apr_json_text *json, const apr_lora_set *set);
/* The members of one adapter's object. */
void apr_adapter_json(apr_json_text *json, const apr_adapter *adapter, double factor);

#endif
