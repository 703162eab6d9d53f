/* families.c - the list of families, and the matching of one name against a table of rules. */
#include "convert/families.h"

#include <stdio.h>
#include <string.h>

static const apr_family *const families[] = {&apr_family_llama, &apr_family_qwen};

const apr_family *apr_family_find(const char *architecture)
{
    if (architecture == NULL) return NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (const char *const *a = families[i]->architectures; *a != NULL; a++)
            if (strcmp(*a, architecture) == 0) return families[i];
    return NULL;
}

/* Does `name` match `pattern`, where "{}" is a decimal number without leading zeros? *layer is that number's text. */
static bool match(const char *pattern, const char *name, const char **layer, size_t *n_layer)
{
    const char *const hole = strstr(pattern, "{}");
    *n_layer = 0;
    if (hole == NULL) return strcmp(pattern, name) == 0;
    const size_t n_head = (size_t)(hole - pattern);
    if (strncmp(pattern, name, n_head) != 0) return false;
    *layer = name + n_head;
    *n_layer = strspn(*layer, "0123456789");
    if (*n_layer == 0 || *n_layer > 6 || ((*layer)[0] == '0' && *n_layer > 1)) return false;
    return strcmp(*layer + *n_layer, hole + 2) == 0;
}

/* `pattern` with its "{}" replaced. */
static const char *fill(const char *pattern, const char *layer, size_t n_layer, apr_arena *arena)
{
    const char *const hole = strstr(pattern, "{}");
    if (hole == NULL) return apr_arena_copy(arena, pattern, strlen(pattern));
    return apr_arena_print(arena, "%.*s%.*s%s", (int)(hole - pattern), pattern, (int)n_layer, layer, hole + 2);
}

bool apr_family_translate(const apr_family *family, apr_dialect from, const char *name, const apr_hparams *hparams, apr_arena *arena,
                          const char **other, apr_step *step)
{
    const bool from_ggml = from == APR_DIALECT_GGML;

    *step = (apr_step){0};
    for (size_t i = 0; i < family->n_rules; i++) {
        const apr_name_rule *const rule = &family->rules[i];
        const char *layer = NULL;
        size_t n_layer;
        if (!match(from_ggml ? rule->ggml : rule->hf, name, &layer, &n_layer)) continue;
        *other = fill(from_ggml ? rule->hf : rule->ggml, layer, n_layer, arena);
        if (rule->rotary_pairs != APR_HEADS_NONE) {
            step->kind = from_ggml ? APR_STEP_PAIRS_TO_HALVES : APR_STEP_HALVES_TO_PAIRS;
            const int64_t n_heads = rule->rotary_pairs == APR_HEADS_QUERY ? hparams->num_heads : hparams->num_kv_heads;
            step->n[0] = n_heads <= INT32_MAX ? (int32_t)n_heads : 0; /* 0 heads fit no tensor */
        }
        return true;
    }
    return false;
}
