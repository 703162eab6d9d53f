/* family.c - the list of families, and the matching of one name against a card's rules. */
#include "formats/model/family.h"

#include <string.h>

const apr_family *const apr_families[] = {
#define X(name) &apr_family_##name,
    APR_FAMILY_LIST(X)
#undef X
};
const size_t apr_n_families = sizeof apr_families / sizeof *apr_families;

static const apr_family_type *find_type(const apr_family *family, const char *model_type)
{
    for (size_t i = 0; i < APR_MAX_FAMILY_TYPES && family->types[i].name != NULL; i++)
        if (strcmp(family->types[i].name, model_type) == 0) return &family->types[i];
    return NULL;
}

const apr_family *apr_family_find(const char *model_type)
{
    for (size_t i = 0; i < apr_n_families && model_type != NULL; i++)
        if (find_type(apr_families[i], model_type) != NULL) return apr_families[i];
    return NULL;
}

const apr_family *apr_family_of_ggml(const char *ggml)
{
    for (size_t i = 0; i < apr_n_families && ggml != NULL; i++)
        if (apr_families[i]->ggml != NULL && strcmp(apr_families[i]->ggml, ggml) == 0) return apr_families[i];
    return NULL;
}

const apr_family *apr_family_translated(const char *model_type)
{
    const apr_family *const family = apr_family_find(model_type);
    return family != NULL && family->translates ? family : NULL;
}

const apr_family_config *apr_family_config_of(const char *model_type)
{
    const apr_family *const family = apr_family_find(model_type);
    return family != NULL ? family->config : NULL;
}

const apr_family_gguf *apr_family_gguf_of(const char *ggml)
{
    static const apr_family_gguf nothing = {0};
    const apr_family *const family = apr_family_of_ggml(ggml);
    return family != NULL ? &family->gguf : &nothing;
}

const apr_family_type *apr_family_type_of(const char *model_type)
{
    const apr_family *const family = apr_family_find(model_type);
    return family != NULL ? find_type(family, model_type) : NULL;
}

const char *apr_family_hf_key(const apr_family_config *config, const apr_hparam_field *field)
{
    for (size_t i = 0; config != NULL && i < APR_MAX_SPELLINGS && config->spellings[i].field != NULL; i++)
        if (strcmp(config->spellings[i].field, field->name) == 0) return config->spellings[i].hf_key;
    return field->hf_key;
}

bool apr_has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);

    if (list == NULL || n == 0 || strchr(word, ' ') != NULL) return false;
    for (const char *at = strstr(list, word); at != NULL; at = strstr(at + 1, word))
        if (at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

const char *apr_architecture_from_ggml(const char *ggml)
{
    const apr_family *const family = apr_family_of_ggml(ggml);
    return family != NULL ? family->types[0].name : ggml;
}

const char *apr_architecture_to_ggml(const char *model_type)
{
    const apr_family *const family = apr_family_find(model_type);
    return family != NULL && family->ggml != NULL ? family->ggml : model_type;
}

/* --- names --- */

/* A decimal number without leading zeros at the start of text: its length, 0 for none. */
static size_t number_length(const char *text)
{
    const size_t n = strspn(text, "0123456789");
    return n > 6 || (text[0] == '0' && n > 1) ? 0 : n;
}

/* Does `name` match `pattern`? *layer is the text of the number in the place of "{}", *n_layer 0 when there is none. */
static bool match(const char *pattern, const char *name, const char **layer, size_t *n_layer)
{
    *n_layer = 0;
    while (*pattern != '\0') {
        if (pattern[0] != '*' && strncmp(pattern, "{}", 2) != 0) {
            if (*pattern++ != *name++) return false;
            continue;
        }
        const size_t n = number_length(name);
        if (n == 0) return false;
        if (*pattern == '{') {
            *layer = name;
            *n_layer = n;
        }
        pattern += *pattern == '{' ? 2 : 1;
        name += n;
    }
    return *name == '\0';
}

/* `pattern` with its "{}" replaced. */
static const char *fill(const char *pattern, const char *layer, size_t n_layer, apr_arena *arena)
{
    const char *const hole = strstr(pattern, "{}");
    if (hole == NULL) return apr_arena_copy(arena, pattern, strlen(pattern));
    return apr_arena_print(arena, "%.*s%.*s%s", (int)(hole - pattern), pattern, (int)n_layer, layer, hole + 2);
}

/* The same for a name of Hugging Face's, which may stand under the prefix of a larger model: "model.{}" of a pattern is then PREFIX{}. */
static bool match_hf(const apr_family *family, const char *pattern, const char *name, const char **layer, size_t *n_layer)
{
    static const char usual[] = "model.";
    const size_t n_usual = sizeof usual - 1, n_prefix = family->text_prefix != NULL ? strlen(family->text_prefix) : 0;

    if (match(pattern, name, layer, n_layer)) return true;
    return n_prefix > 0 && strncmp(pattern, usual, n_usual) == 0 && strncmp(name, family->text_prefix, n_prefix) == 0 &&
           match(pattern + n_usual, name + n_prefix, layer, n_layer);
}

const apr_tensor_rule *apr_family_rule(const apr_family *family, const char *name)
{
    const char *layer;
    size_t n_layer;

    for (size_t i = 0; i < family->n_tensors; i++) {
        const apr_tensor_rule *const rule = &family->tensors[i];
        if (rule->hf != NULL && match_hf(family, rule->hf, name, &layer, &n_layer)) return rule;
        if (rule->ggml != NULL && match(rule->ggml, name, &layer, &n_layer)) return rule;
    }
    return NULL;
}

bool apr_family_translate(const apr_family *family, apr_dialect from, const char *name, const apr_hparams *hparams, apr_arena *arena,
                          const char **other, apr_step *step)
{
    const bool from_ggml = from == APR_DIALECT_GGML;

    *step = (apr_step){0};
    for (size_t i = 0; i < family->n_tensors; i++) {
        const apr_tensor_rule *const rule = &family->tensors[i];
        const char *layer = NULL;
        size_t n_layer;
        if (rule->hf == NULL || rule->ggml == NULL) continue;
        if (!(from_ggml ? match(rule->ggml, name, &layer, &n_layer) : match_hf(family, rule->hf, name, &layer, &n_layer))) continue;
        *other = fill(from_ggml ? rule->hf : rule->ggml, layer, n_layer, arena);
        if (rule->rotary_pairs != APR_HEADS_NONE) {
            step->kind = from_ggml ? APR_STEP_PAIRS_TO_HALVES : APR_STEP_HALVES_TO_PAIRS;
            step->n_heads = rule->rotary_pairs == APR_HEADS_QUERY ? hparams->num_heads : hparams->num_kv_heads;
        }
        return true;
    }
    return false;
}
