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

bool apr_family_is_in_ggml(const apr_family *family, const char *ggml)
{
    const char *const other = family->gguf.name_without_experts;
    return family->ggml != NULL && (strcmp(family->ggml, ggml) == 0 || (other != NULL && strcmp(other, ggml) == 0));
}

const apr_family *apr_family_of_ggml(const char *ggml)
{
    for (size_t i = 0; i < apr_n_families && ggml != NULL; i++)
        if (apr_family_is_in_ggml(apr_families[i], ggml)) return apr_families[i];
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

const apr_family_gguf *apr_family_gguf_of(const apr_family *family)
{
    static const apr_family_gguf nothing = {0};
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

/* A name with "{}" for its first number and "*" for the second, as rules are written. */
typedef struct plain_name {
    char text[256];
    const char *layer; /* the first number, in the name */
    size_t n_layer;    /* 0: there is none */
} plain_name;

/* The length of a part that is a decimal number without leading zeros; 0: it is none. */
static size_t number_length(const char *part)
{
    const size_t n = strspn(part, "0123456789");
    const bool is_whole = part[n] == '.' || part[n] == '\0';
    return !is_whole || n > 6 || (part[0] == '0' && n > 1) ? 0 : n;
}

/* False when no rule can be meant: it is longer than any, or has a rule's own signs in it. `prefix` stands for "model." where the name
 * begins with it; NULL: nothing does. */
static bool make_plain(plain_name *plain, const char *name, const char *prefix)
{
    size_t n = 0;
    int n_numbers = 0;

    plain->layer = "";
    plain->n_layer = 0;
    if (strpbrk(name, "{}*") != NULL) return false;
    if (prefix != NULL && strncmp(name, prefix, strlen(prefix)) == 0) {
        name += strlen(prefix);
        memcpy(plain->text, "model.", n = 6);
    }
    for (bool starts_part = true; *name != '\0'; starts_part = *name++ == '.') {
        const size_t n_digits = starts_part && n_numbers < 2 ? number_length(name) : 0;
        if (n + 3 > sizeof plain->text) return false;
        if (n_digits == 0) {
            plain->text[n++] = *name;
            continue;
        }
        if (n_numbers++ == 0) {
            plain->layer = name;
            plain->n_layer = n_digits;
            plain->text[n++] = '{';
            plain->text[n++] = '}';
        } else plain->text[n++] = '*';
        name += n_digits - 1;
    }
    plain->text[n] = '\0';
    return true;
}

static bool is_plain(const char *pattern, const plain_name *plain)
{
    return pattern != NULL && pattern[0] == plain->text[0] && strcmp(pattern, plain->text) == 0;
}

/* `pattern` with its "{}" replaced. */
static const char *fill(const char *pattern, const plain_name *plain, apr_arena *arena)
{
    const char *const hole = strstr(pattern, "{}");
    if (hole == NULL) return apr_arena_copy(arena, pattern, strlen(pattern));
    return apr_arena_print(arena, "%.*s%.*s%s", (int)(hole - pattern), pattern, (int)plain->n_layer, plain->layer, hole + 2);
}

const apr_tensor_rule *apr_family_rule(const apr_family *family, const char *name)
{
    plain_name plain;

    if (!make_plain(&plain, name, family->text_prefix)) return NULL;
    for (size_t i = 0; i < family->n_tensors; i++)
        if (is_plain(family->tensors[i].hf, &plain) || is_plain(family->tensors[i].ggml, &plain)) return &family->tensors[i];
    return NULL;
}

bool apr_family_translate(const apr_family *family, apr_dialect from, const char *name, const apr_hparams *hparams, apr_arena *arena,
                          const char **other, apr_step *step)
{
    const bool from_ggml = from == APR_DIALECT_GGML;
    plain_name plain;

    *step = (apr_step){0};
    if (!make_plain(&plain, name, from_ggml ? NULL : family->text_prefix)) return false;
    for (size_t i = 0; i < family->n_tensors; i++) {
        const apr_tensor_rule *const rule = &family->tensors[i];
        if (rule->hf == NULL || rule->ggml == NULL || !is_plain(from_ggml ? rule->ggml : rule->hf, &plain)) continue;
        *other = fill(from_ggml ? rule->hf : rule->ggml, &plain, arena);
        if (rule->rotary_pairs != APR_HEADS_NONE) {
            step->kind = from_ggml ? APR_STEP_PAIRS_TO_HALVES : APR_STEP_HALVES_TO_PAIRS;
            const int64_t n_heads = rule->rotary_pairs == APR_HEADS_QUERY ? hparams->num_heads : hparams->num_kv_heads;
            step->n[0] = n_heads <= INT32_MAX ? (int32_t)n_heads : 0; /* 0 heads fit no tensor */
        }
        return true;
    }
    return false;
}
