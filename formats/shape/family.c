/* family.c - the list of families, and lookup by name. */
#include "formats/shape/family.h"
#include "formats/base/text.h"

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

/* The text part of a multimodal model has the model's type with "_text" appended: "qwen2_5_vl_text". */
static const apr_family_type *find_text_type(const apr_family *family, const char *model_type)
{
    const size_t n = apr_stem_of(model_type, "_text");

    for (size_t i = 0; n > 0 && i < APR_MAX_FAMILY_TYPES && family->types[i].name != NULL; i++)
        if (strlen(family->types[i].name) == n && strncmp(family->types[i].name, model_type, n) == 0) return &family->types[i];
    return NULL;
}

const apr_family *apr_family_find(const char *model_type)
{
    for (size_t i = 0; i < apr_n_families && model_type != NULL; i++)
        if (find_type(apr_families[i], model_type) != NULL) return apr_families[i];
    for (size_t i = 0; i < apr_n_families && model_type != NULL; i++)
        if (find_text_type(apr_families[i], model_type) != NULL) return apr_families[i];
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
    const apr_family_type *const type = family != NULL ? find_type(family, model_type) : NULL;
    return type != NULL || family == NULL ? type : find_text_type(family, model_type);
}

const char *apr_architecture_from_ggml(const char *ggml)
{
    const apr_family *const family = apr_family_of_ggml(ggml);
    return family != NULL ? family->types[0].name : ggml;
}
