/* hf_config_make.c - a config.json and the tensors of its model: makes one for a model that has none, with the biases, norms and types that
 * the tensors show, and finds bias tensors that disagree with it. */
#include "formats/base/text.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config.h"
#include "formats/shape/text_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_name(const apr_model *m, const char *part, const char *suffix)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (strstr(m->tensors[i].name, part) != NULL && apr_ends_with(m->tensors[i].name, suffix)) return true;
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
    if (config != NULL && apr_is_any_of("attention_out_bias", config->computes))
        hparams.attention_out_bias |= has_name(m, ".self_attn.o_proj", ".bias");
    if (config != NULL && (config->flags_shown & APR_FLAG(use_qk_norm)) != 0)
        hparams.use_qk_norm |= has_name(m, ".self_attn.q_norm", ".weight");
    if (config != NULL && (config->flags_shown & APR_FLAG(enable_moe_block)) != 0)
        hparams.enable_moe_block |= has_name(m, ".router.proj", ".weight");
    char *const text = apr_hf_config_write(&hparams, &m->vocab);
    const char *const members = fp8_members(m);
    return text == NULL || members == NULL ? text : add_members(text, members);
}

/* --- Do the biases agree? transformers builds what the class and config.json say, and ignores tensors that the class does not have. --- */

/* Searches the text model only: a vision or audio tower may have other biases. */
static const apr_tensor *find_by_suffix(const apr_model *model, const char *suffix)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        const char *const name = model->tensors[i].name;
        if (apr_ends_with(name, suffix) && apr_part_of(model, name) == APR_PART_TEXT) return &model->tensors[i];
    }
    return NULL;
}

static bool is_expected(apr_bias_rule rule, bool is_stated, bool is_output)
{
    const bool on_inputs_only = rule == APR_BIAS_QKV_ALWAYS || rule == APR_BIAS_QKV_WHEN_STATED;
    const bool holds = rule == APR_BIAS_ALWAYS || rule == APR_BIAS_QKV_ALWAYS || (rule != APR_BIAS_NEVER && is_stated);
    return holds && !(on_inputs_only && is_output);
}

typedef struct bias {
    const char *suffix, *field; /* of the tensors' names; in config.json */
    bool is_mlp, is_output;
} bias;

static const bias biases[] = {
    {".self_attn.q_proj.bias", "attention_bias", false, false}, {".self_attn.k_proj.bias", "attention_bias", false, false},
    {".self_attn.v_proj.bias", "attention_bias", false, false}, {".self_attn.o_proj.bias", "attention_bias", false, true},
    {".mlp.gate_proj.bias", "mlp_bias", true, false},           {".mlp.up_proj.bias", "mlp_bias", true, false},
    {".mlp.down_proj.bias", "mlp_bias", true, false},
};

/* Does the model have any bias of the feed-forward (is_mlp), or of attention? */
static bool has_group(const apr_model *model, bool is_mlp)
{
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (biases[i].is_mlp == is_mlp && find_by_suffix(model, biases[i].suffix) != NULL) return true;
    return false;
}

static bool has_matrix(const apr_model *model, const bias *b)
{
    char suffix[64];
    snprintf(suffix, sizeof suffix, "%.*s.weight", (int)(strlen(b->suffix) - strlen(".bias")), b->suffix);
    return find_by_suffix(model, suffix) != NULL;
}

/* Does the model have other matrices of the group, but not the one that the bias would belong to? arcee has no gate_proj. */
static bool lacks_matrix(const apr_model *model, const bias *b)
{
    bool has_others = false;
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        has_others |= biases[i].is_mlp == b->is_mlp && has_matrix(model, &biases[i]);
    return has_others && !has_matrix(model, b);
}

/* Other families have other names. */
static bool has_rule(const apr_family *family, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "model.layers.0%s", suffix);
    return apr_family_rule(family, name) != NULL;
}

const char *apr_hf_bias_conflict(const apr_model *model, const apr_hparams *h, bool want_all, apr_arena *arena)
{
    const apr_family_config *const f = apr_family_config_of(h->architecture);
    const apr_family *const family = apr_family_find(h->architecture);

    for (size_t i = 0; i < sizeof biases / sizeof *biases && f != NULL; i++) {
        const bias *const b = &biases[i];
        const apr_tensor *const found = find_by_suffix(model, b->suffix);
        const apr_bias_rule rule = b->is_mlp ? f->mlp_bias : f->attention_bias;
        const bool expected =
            is_expected(rule, b->is_mlp ? h->mlp_bias : h->attention_bias, b->is_output) || (b->is_output && h->attention_out_bias);
        if (found != NULL && !expected && (rule == APR_BIAS_WHEN_STATED || (rule == APR_BIAS_QKV_WHEN_STATED && !b->is_output)))
            return apr_arena_print(arena, "it has the bias '%.150s' and no \"%s\": true, so transformers computes without it", found->name,
                                   b->field);
        if (found != NULL && !expected)
            return apr_arena_print(arena, "it has the bias '%.150s', which transformers' %s has no place for", found->name,
                                   h->architecture);
        if (found == NULL && expected && want_all && has_group(model, b->is_mlp) && !lacks_matrix(model, b) && has_rule(family, b->suffix))
            return apr_arena_print(arena, "it has biases, but none called '*%s', which transformers' %s also has", b->suffix,
                                   h->architecture);
    }
    return NULL;
}
