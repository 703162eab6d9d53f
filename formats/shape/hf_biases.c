/* hf_biases.c - checks that a model's bias tensors agree with its config.json. transformers builds what the class and config.json say,
 * and ignores tensors that the class does not have. */
#include "formats/shape/family.h"
#include "formats/shape/hf_config.h"
#include "formats/shape/text_part.h"

#include <string.h>

/* Searches the text model only: a vision or audio tower may have other biases. */
static const apr_tensor *find_ending(const apr_model *model, const char *ending)
{
    const size_t n_ending = strlen(ending);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const char *const name = model->tensors[i].name;
        const size_t n = strlen(name);
        if (n >= n_ending && strcmp(name + n - n_ending, ending) == 0 && apr_part_of(model, name) == APR_PART_TEXT)
            return &model->tensors[i];
    }
    return NULL;
}

static bool is_expected(apr_bias_rule rule, bool is_stated, bool is_output)
{
    const bool on_inputs_only = rule == APR_BIAS_QKV_ALWAYS || rule == APR_BIAS_QKV_WHEN_STATED;
    const bool holds = rule == APR_BIAS_QKV_ALWAYS || (rule != APR_BIAS_NEVER && is_stated);
    return holds && !(on_inputs_only && is_output);
}

typedef struct bias {
    const char *ending, *field; /* of the tensors' names; in config.json */
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
        if (biases[i].is_mlp == is_mlp && find_ending(model, biases[i].ending) != NULL) return true;
    return false;
}

const char *apr_hf_bias_conflict(const apr_model *model, const apr_hparams *h, bool want_all, apr_arena *arena)
{
    const apr_family_config *const f = apr_family_config_of(h->architecture);

    for (size_t i = 0; i < sizeof biases / sizeof *biases && f != NULL; i++) {
        const bias *const b = &biases[i];
        const apr_tensor *const found = find_ending(model, b->ending);
        const apr_bias_rule rule = b->is_mlp ? f->mlp_bias : f->attention_bias;
        const bool expected = is_expected(rule, b->is_mlp ? h->mlp_bias : h->attention_bias, b->is_output);
        if (found != NULL && !expected && (rule == APR_BIAS_WHEN_STATED || (rule == APR_BIAS_QKV_WHEN_STATED && !b->is_output)))
            return apr_arena_print(arena, "it has the bias '%.150s' and no \"%s\": true, so transformers computes without it", found->name,
                                   b->field);
        if (found != NULL && !expected)
            return apr_arena_print(arena, "it has the bias '%.150s', which transformers' %s has no place for", found->name,
                                   h->architecture);
        if (found == NULL && expected && want_all && has_group(model, b->is_mlp))
            return apr_arena_print(arena, "it has biases, but none called '*%s', which transformers' %s also has", b->ending,
                                   h->architecture);
    }
    return NULL;
}
