/* lora_option.h - the repeatable option "--lora DIR[:FACTOR]", and how adapters are printed. */
#ifndef APR_TOOLS_LORA_OPTION_H
#define APR_TOOLS_LORA_OPTION_H

#include "tools/cli/cli.h"
#include "tools/engine/run/lora_set.h"

/* A row of an option table; `member` is an apr_strings of `type`, `whom` names what adapters are merged into: "the weights". */
#define APR_LORA_OPTION(type, member, whom)                                                                                                \
    {                                                                                                                                      \
        "lora", 0, APR_OPTION_LIST, "DIR[:FACTOR]", NULL,                                                                                  \
            "merge the LoRA adapter in DIR (or a GGUF) into " whom ", scaled by FACTOR (default 1); several add up", APR_TO(type, member), \
            .group = "Adapters"                                                                                                            \
    }

void apr_lora_set_print(const apr_lora_set *set, FILE *out); /* a line for each adapter */
void apr_lora_set_json(apr_json_text *json, const apr_lora_set *set);
/* The members of one adapter's object. */
void apr_adapter_json(apr_json_text *json, const apr_adapter *adapter, double factor);

#endif
