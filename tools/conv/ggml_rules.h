/* ggml_rules.h - llama-quantize's options about single tensors, as rules of --tensor. */
#ifndef APR_TOOLS_GGML_RULES_H
#define APR_TOOLS_GGML_RULES_H

#include "quant/recipe.h"

typedef struct apr_ggml_rules {
    const char *head_type, *embedding_type; /* NULL: as the mixture says */
    bool pure, leaves_head;
} apr_ggml_rules;

/* The most that are added, and one. */
enum { APR_GGML_RULES = 4 };

/* Adds them behind the recipe's overrides, which lie in `overrides` with room for APR_GGML_RULES more, and says on stderr what became of
 * each. The names are those of the model at `path`, of which the head is opened; the embedding is the head where there is no other. */
apr_status apr_ggml_rules_add(const apr_ggml_rules *rules, const char *path, apr_recipe_options *recipe, apr_recipe_override *overrides,
                              apr_arena *arena, apr_error *err);

#endif
