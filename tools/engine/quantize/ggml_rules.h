/* ggml_rules.h - translates llama-quantize's options about single tensors to rules of --tensor. */
#ifndef APR_ENGINE_GGML_RULES_H
#define APR_ENGINE_GGML_RULES_H

#include "quant/recipe.h"

typedef struct apr_ggml_rules {
    const char *head_type, *embedding_type; /* NULL: the mixture decides */
    bool pure, leaves_head;
} apr_ggml_rules;

/* The maximum number of rules that are added, plus one. */
enum { APR_GGML_RULES = 4 };

/* What each option came to mean, for the user; also after a failure. */
typedef struct apr_ggml_notes {
    const char *texts[APR_GGML_RULES];
    size_t n;
} apr_ggml_notes;

/* Adds rules after the recipe's overrides, with a note about each. `overrides` holds the recipe's overrides and has capacity for
 * APR_GGML_RULES more. Tensor names are read from the header of the model at `path`. If it has no output head, the embedding is the head. */
apr_status apr_ggml_rules_add(const apr_ggml_rules *rules, const char *path, apr_recipe_options *recipe, apr_recipe_override *overrides,
                              apr_ggml_notes *notes, apr_arena *arena, apr_error *err);

#endif
