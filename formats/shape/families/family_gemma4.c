/* family_gemma4.c - gemma4: sliding and full layers of different widths, shared keys and values, per-layer inputs, experts in parallel
 * with the feed-forward. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#include <stdlib.h>
#include <string.h>

#define L "model.layers.{}."

#define B "blk.{}."

static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", APR_TENSOR_ROLE_EMBEDDING},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight", APR_TENSOR_ROLE_KEPT},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "layer_scalar", B "layer_output_scale.weight", APR_TENSOR_ROLE_SMALL},
    {L "per_layer_input_gate.weight", B "inp_gate.weight", APR_TENSOR_ROLE_MATRIX},
    {L "per_layer_projection.weight", B "proj.weight", APR_TENSOR_ROLE_MATRIX},
    {L "post_per_layer_input_norm.weight", B "post_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "post_feedforward_layernorm_1.weight", B "post_ffw_norm_1.weight", APR_TENSOR_ROLE_SMALL},
    {L "post_feedforward_layernorm_2.weight", B "post_ffw_norm_2.weight", APR_TENSOR_ROLE_SMALL},
    {L "pre_feedforward_layernorm_2.weight", B "pre_ffw_norm_2.weight", APR_TENSOR_ROLE_SMALL},
    {L "router.proj.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {L "router.scale", B "ffn_gate_inp.scale", APR_TENSOR_ROLE_SMALL},
    {L "router.per_expert_scale", B "ffn_down_exps.scale", APR_TENSOR_ROLE_SMALL},
    {L "experts.*.gate_proj.weight", NULL, APR_TENSOR_ROLE_FFN_GATE},
    {L "experts.*.up_proj.weight", NULL, APR_TENSOR_ROLE_FFN_UP},
    {L "experts.*.down_proj.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
};

static const apr_tensor_form forms[] = {
    {APR_NAMING_HF, APR_FORM_WRITTEN, L "experts.gate_up_proj", NULL, APR_GATE_AND_UP(L "experts.*.")},
    {APR_NAMING_HF, APR_FORM_WRITTEN, L "experts.down_proj", NULL, {{L "experts.*.down_proj.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_WRITTEN, B "ffn_gate_up_exps.weight", NULL, APR_GATE_AND_UP(L "experts.*.")},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_gate_exps.weight", NULL, {{L "experts.*.gate_proj.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_up_exps.weight", NULL, {{L "experts.*.up_proj.weight", {{0}}}}},
};

static const apr_family_rope rope = {.theta = 1e6, .scaling = {.kind = APR_ROPE_PROPORTIONAL, .partial_rotary_factor = 0.25}};

/* gemma4 of transformers 5: {"5": {"head_dim": 512, "num_key_value_heads": 1}, ...}, the same for all full layers. */
static apr_status read_layer_overrides(const apr_config_reading *r, const cJSON *overrides)
{
    const cJSON *layer, *item;
    int64_t head_dim = 0, kv_heads = 0;

    cJSON_ArrayForEach(layer, overrides)
    {
        int64_t layer_head_dim = 0, layer_kv_heads = 0;
        cJSON_ArrayForEach(item, layer)
        {
            const bool is_head_dim = strcmp(item->string != NULL ? item->string : "", "head_dim") == 0;
            if (!is_head_dim && strcmp(item->string != NULL ? item->string : "", "num_key_value_heads") != 0)
                return apr_config_refuse(r, "its \"per_layer_config\" has another \"%.40s\" in layer %.20s",
                                         item->string != NULL ? item->string : "", layer->string);
            if (!apr_json_as_int(item, is_head_dim ? &layer_head_dim : &layer_kv_heads))
                return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" in \"per_layer_config\" is not an integer", r->where, item->string);
        }
        if (layer != overrides->child && (layer_head_dim != head_dim || layer_kv_heads != kv_heads))
            return apr_config_refuse(r, "its \"per_layer_config\" differs between layers of full attention");
        head_dim = layer_head_dim;
        kv_heads = layer_kv_heads;
    }
    r->h->global_head_dim = head_dim;
    r->h->num_global_kv_heads = kv_heads;
    return APR_OK;
}

/* Full layers may have another head size: stated once for all of them (hub), or for each layer. */
static apr_status settle_global_heads(const apr_config_reading *r)
{
    apr_hparams *const h = r->h;
    const cJSON *const overrides = apr_config_find(r, "per_layer_config");

    if (overrides != NULL && !cJSON_IsObject(overrides))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"per_layer_config\" is not an object", r->where);
    if (overrides != NULL) APR_TRY(read_layer_overrides(r, overrides));
    else if (!h->attention_k_eq_v) h->num_global_kv_heads = 0; /* the class uses it only with shared keys and values */
    if (h->global_head_dim == h->head_dim) h->global_head_dim = 0;
    return APR_OK;
}

/* gemma4's class makes the last layer a full one, whatever the file says. Only full layers may have entries in per_layer_config. */
static apr_status settle_full_layers(const apr_config_reading *r)
{
    apr_hparams *const h = r->h;
    const cJSON *const overrides = apr_config_find(r, "per_layer_config"), *layer;
    int64_t n_full = 0, n_named = 0;

    if (h->layer_kinds == NULL || h->num_layers <= 0) return APR_OK;
    uint8_t *const kinds = apr_arena_alloc(r->arena, (size_t)h->num_layers + 1);
    if (kinds == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    memcpy(kinds, h->layer_kinds, (size_t)h->num_layers);
    kinds[h->num_layers - 1] = APR_LAYER_FULL;
    h->layer_kinds = kinds;
    for (int64_t i = 0; i < h->num_layers; i++) n_full += h->layer_kinds[i] == APR_LAYER_FULL;
    if (overrides == NULL || overrides->child == NULL) return APR_OK;
    cJSON_ArrayForEach(layer, overrides)
    {
        char *end;
        const long long i = strtoll(layer->string, &end, 10);
        if (*layer->string == '\0' || *end != '\0' || i < 0 || i >= h->num_layers)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: \"per_layer_config\" names a layer \"%.40s\"", r->where, layer->string);
        n_named += h->layer_kinds[i] == APR_LAYER_FULL;
        if (h->layer_kinds[i] != APR_LAYER_FULL) return apr_config_refuse(r, "its \"per_layer_config\" changes the sliding layer %lld", i);
    }
    return n_named == n_full ? APR_OK : apr_config_refuse(r, "its \"per_layer_config\" leaves out layers of full attention");
}

static const apr_family_config gemma4 = {
    .settle = settle_global_heads,
    .settle_layers = settle_full_layers,
    .activation = "gelu_pytorch_tanh",
    .activation_key = "hidden_activation",
    .window = APR_WINDOW_PATTERN,
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(num_experts_per_tok), "top_k_experts"}},
    .local_rope = true,
    .computes = APR_NAMES("hidden_act", "final_logit_softcapping", "rope_local_base_freq", "num_kv_shared_layers", "per_layer_config",
                          "hidden_size_per_layer_input", "enable_moe_block", "attention_k_eq_v", "use_double_wide_mlp"),
    .accepts = {{"use_bidirectional_attention", APR_NAMES("vision")}}, /* applies between the tokens of an image */
    .flags_on = APR_FLAG(tie_word_embeddings),
    .flags_always = APR_FLAG(norm_topk_prob),
    .flags_shown = APR_FLAG(enable_moe_block),
    .num_kv_heads = 4,
    .head_dim = 256,
    .max_position_embeddings = 131072,
    .sliding_window = 512,
    .full_every = 6,
    .rms_norm_eps = 1e-6,
    .rope_theta = 1e6,
    .defaults = {.num_heads = 8,
                 .intermediate_size = 9216,
                 .vocab_size = 262144,
                 .per_layer_input_size = 256,
                 .global_head_dim = 512,
                 .rope_theta_local = 1e4},
    .rope = &rope};

static const apr_hparams assumes = {.rope_theta_local = 10000, .norm_topk_prob = true};

const apr_family apr_family_gemma4 = {
    .name = "gemma4",
    .types = {{"gemma4_text", "Gemma4ForCausalLM"}, {"gemma4", "Gemma4ForConditionalGeneration"}},
    .ggml = "gemma4",
    .gguf = {.more_keys = {APR_KEY(final_logit_softcapping), APR_KEY(sliding_window), APR_KEY_ALWAYS(num_kv_shared_layers),
                           APR_KEY_ALWAYS(per_layer_input_size), APR_KEY(sliding_window_pattern), APR_KEY(key_length_swa),
                           APR_KEY(value_length_swa), APR_KEY(moe_intermediate_size), APR_KEY(rotary_dim), APR_KEY(dimension_count_swa)},
             .assumes = &assumes,
             .reads_rope_freqs = true,
             .has_window = true},
    .config = &gemma4,
    APR_OWN_TENSORS(tensors),
    APR_OWN_FORMS(forms),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_sandwich_norms, &apr_tensors_dense},
    .translates = true};
