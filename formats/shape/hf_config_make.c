/* hf_config_make.c - makes a config.json for a model that has none. Biases, norms and types are taken from its tensors. */
#include "formats/shape/family.h"
#include "formats/shape/hf_config.h"

#include <stdlib.h>
#include <string.h>

static bool has_name(const apr_model *m, const char *part, const char *ending)
{
    const size_t n_ending = strlen(ending);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const char *const name = m->tensors[i].name;
        const size_t n = strlen(name);
        if (strstr(name, part) != NULL && n >= n_ending && strcmp(name + n - n_ending, ending) == 0) return true;
    }
    return false;
}

/* The torch_dtype of most of the weights; NULL: none of them has such a type. */
static const char *most_common_dtype(const apr_model *m)
{
    static const struct {
        apr_dtype dtype;
        const char *name;
    } floats[] = {{APR_BF16, "bfloat16"}, {APR_F16, "float16"}, {APR_F32, "float32"}};
    const char *name = NULL;
    uint64_t most = 0;

    for (size_t f = 0; f < sizeof floats / sizeof *floats; f++) {
        uint64_t n_bytes = 0;
        for (size_t i = 0; i < m->n_tensors; i++)
            if (m->tensors[i].dtype == floats[f].dtype) n_bytes += m->tensors[i].n_bytes;
        if (n_bytes <= most) continue;
        name = floats[f].name;
        most = n_bytes;
    }
    return name;
}

/* The quantization_config of FP8 weights with one scale each, as Mistral writes it. NULL: no such weights, or also others. */
static const char *fp8_members(const apr_model *m)
{
    static const char *const members[] = {
        ",\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":null,"
        "\"modules_to_not_convert\":[\"lm_head\"]}}",
        ",\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"weight_block_size\":null,"
        "\"modules_to_not_convert\":[\"lm_head\"]}}"};
    size_t n = 0;

    for (size_t i = 0; i < m->n_tensors; i++) {
        if (m->tensors[i].scale == NULL) continue;
        if (apr_tensor_elems(m->tensors[i].scale) != 1) return NULL;
        n++;
    }
    return n > 0 ? members[has_name(m, ".activation_scale", "")] : NULL;
}

/* Inserts members before the last bracket. NULL: no memory, and the text is freed. */
static char *add_members(char *text, const char *members)
{
    const size_t n = strlen(text), n_members = strlen(members);
    char *const longer = realloc(text, n + n_members);

    if (longer == NULL) return free(text), NULL;
    memcpy(longer + n - 1, members, n_members + 1);
    return longer;
}

char *apr_hf_config_make(const apr_model *m)
{
    apr_hparams hparams = m->hparams;
    const apr_family_config *const config = apr_family_config_of(hparams.architecture);

    if (hparams.torch_dtype == NULL) hparams.torch_dtype = most_common_dtype(m);
    hparams.attention_bias |= has_name(m, ".self_attn.q", "_proj.bias"); /* of q, or of q, k and v in one */
    hparams.mlp_bias |= has_name(m, ".mlp.", "_proj.bias");
    if (config != NULL && apr_has_word(config->flags_shown, "use_qk_norm"))
        hparams.use_qk_norm |= has_name(m, ".self_attn.q_norm", ".weight");
    if (config != NULL && apr_has_word(config->flags_shown, "enable_moe_block"))
        hparams.enable_moe_block |= has_name(m, ".router.proj", ".weight");
    char *const text = apr_hf_config_write(&hparams, &m->vocab);
    const char *const members = fp8_members(m);
    return text == NULL || members == NULL ? text : add_members(text, members);
}
