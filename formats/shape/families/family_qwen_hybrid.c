/* family_qwen_hybrid.c - layers with a delta rule between layers of attention: qwen3_next, qwen3_5, qwen3_5_moe (gated attention),
 * kimi_linear and bailing_hybrid (Ling; latent attention).
 *
 * For Qwen's families the naming schemes differ in more than names: ggml stores norms plus one, A_log as -exp, and convolutions squeezed. Where there are
 * more value heads than key heads it also stores value heads in another order. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#include <string.h>

#define KEYS                                                                                                               \
    APR_KEY(moe_intermediate_size), APR_KEY(shared_expert_intermediate_size), APR_KEY(linear_conv_kernel_dim),             \
        APR_KEY(linear_key_head_dim), APR_KEY(linear_num_key_heads), APR_KEY(linear_num_value_heads), APR_KEY(inner_size), \
        APR_KEY(full_attention_interval), APR_KEY(rotary_dim), APR_KEY(num_nextn_layers)

#define COMMON                                                                                                                      \
    .norms_add_one = true, .translates = true,                                                                                      \
    .sets = {&linear_set,        &apr_tensors_ends,    &apr_tensors_attention,    &apr_tensors_qk_norm, &apr_tensors_ffn_post_norm, \
             &apr_tensors_dense, &apr_tensors_experts, &apr_tensors_shared_expert}

#define SPLIT APR_OWN_TENSORS(split), .tiles_value_heads = true

#define CONFIG                                                                                                                        \
    .activation = "silu", .layer_types = APR_NAMES("full_attention", "linear_attention"), .attention_bias = APR_BIAS_WHEN_STATED,     \
    .computes = APR_NAMES("attn_output_gate", "use_gated_attention", "qk_layernorm", "use_qk_norm", "qk_norm", "decoder_sparse_step", \
                          "mlp_only_layers"),                                                                                         \
    .head_dim = 256, .max_position_embeddings = 32768, .rms_norm_eps = 1e-6, .partial_rotary_factor = 0.25

#define LINEAR                                                                                                           \
    .full_attention_interval = 4, .linear_conv_kernel_dim = 4, .linear_key_head_dim = 128, .linear_value_head_dim = 128, \
    .linear_num_key_heads = 16, .linear_num_value_heads = 32

#define DELTA "model.layers.{}.linear_attn."

/* Rules that the three share. Value heads are moved only where the spec says that ggml tiles them. */
static const apr_tensor_rule linear[] = {
    {DELTA "conv1d.weight", "blk.{}.ssm_conv1d.weight", APR_TENSOR_ROLE_SMALL, {APR_CONVOLUTION, APR_TILED(1, APR_OF_TWICE_KEYS)}},
    {DELTA "A_log", "blk.{}.ssm_a", APR_TENSOR_ROLE_SMALL, {APR_TILED(0, 0), APR_DECAY}},
    {DELTA "dt_bias", "blk.{}.ssm_dt.bias", APR_TENSOR_ROLE_SMALL, {APR_TILED(0, 0)}},
    {DELTA "norm.weight", "blk.{}.ssm_norm.weight", APR_TENSOR_ROLE_SMALL},
    {DELTA "out_proj.weight", "blk.{}.ssm_out.weight", APR_TENSOR_ROLE_MATRIX, {APR_TILED(0, 0)}},
    {DELTA "in_proj_qkv.weight", "blk.{}.attn_qkv.weight", APR_TENSOR_ROLE_ATTN_QKV, {APR_TILED(1, APR_OF_TWICE_KEYS)}},
    {DELTA "in_proj_z.weight", "blk.{}.attn_gate.weight", APR_TENSOR_ROLE_ATTN_GATE, {APR_TILED(1, 0)}},
};

static const apr_tensor_set linear_set = {.rules = linear, .n_rules = sizeof linear / sizeof *linear};

static const apr_tensor_rule split[] = {
    {DELTA "in_proj_a.weight", "blk.{}.ssm_alpha.weight", APR_TENSOR_ROLE_DECAY, {APR_TILED(1, 0)}},
    {DELTA "in_proj_b.weight", "blk.{}.ssm_beta.weight", APR_TENSOR_ROLE_DECAY, {APR_TILED(1, 0)}},
};

/* qwen3_next stores the rows of a key head together: its query, its key, and the values and gates that share it. */
static const apr_tensor_rule by_key_head[] = {
    {DELTA "in_proj_qkvz.weight", NULL, APR_TENSOR_ROLE_ATTN_QKV},
    {DELTA "in_proj_ba.weight", "blk.{}.ssm_ba.weight", APR_TENSOR_ROLE_DECAY},
};

static const apr_tensor_form key_head_forms[] = {
    {APR_NAMING_HF,
     APR_FORM_WHOLE,
     DELTA "in_proj_qkvz.weight",
     NULL,
     {{DELTA "in_proj_q.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, 0, APR_OF_KEY_WIDTH}}}},
      {DELTA "in_proj_k.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, APR_OF_KEY_WIDTH, APR_OF_KEY_WIDTH}}}},
      {DELTA "in_proj_v.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, APR_OF_TWICE_WIDTH, APR_OF_VALUES_WIDTH}}}},
      {DELTA "in_proj_z.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, APR_OF_GATE_PLACE, APR_OF_VALUES_WIDTH}}}}}},
    {APR_NAMING_GGML,
     APR_FORM_WHOLE,
     DELTA "in_proj_qkv.weight",
     NULL,
     {{DELTA "in_proj_q.weight", {{APR_STEP_TAKE, {1, 1, 0, APR_OF_KEYS}}}},
      {DELTA "in_proj_k.weight", {{APR_STEP_TAKE, {1, 1, APR_OF_KEYS, APR_OF_KEYS}}}},
      {DELTA "in_proj_v.weight", {{APR_STEP_TAKE, {1, 1, APR_OF_TWICE_KEYS, APR_OF_VALUES}}}}}},
};

#define EXPERTS(n, used) .num_experts = n, .num_experts_per_tok = used, .moe_intermediate_size = 512, .shared_expert_intermediate_size = 512

static const apr_family_config qwen3_next = {
    CONFIG, .experts = APR_EXPERTS_BY_STEP, .flags_on = APR_FLAG(norm_topk_prob), .num_kv_heads = 2,
    .defaults = {LINEAR, .num_heads = 16, .intermediate_size = 5632, .vocab_size = 151936, EXPERTS(512, 10)}};

static const apr_family_config qwen3_5 = {CONFIG, .num_kv_heads = 4,
                                          .defaults = {LINEAR, .num_heads = 16, .intermediate_size = 12288, .vocab_size = 248320}};

static const apr_family_config qwen3_5_moe = {CONFIG, .flags_always = APR_FLAG(norm_topk_prob), .num_kv_heads = 2,
                                              .defaults = {LINEAR, .num_heads = 16, .vocab_size = 248320, EXPERTS(256, 8)}};

static const apr_hparams with_experts = {.norm_topk_prob = true};

const apr_family apr_family_qwen3_next = {.name = "qwen3_next",
                                          .types = {{"qwen3_next", "Qwen3NextForCausalLM"}},
                                          .ggml = "qwen3next",
                                          .gguf = {.more_keys = {KEYS}, .assumes = &with_experts},
                                          .config = &qwen3_next,
                                          APR_OWN_TENSORS(by_key_head),
                                          APR_OWN_FORMS(key_head_forms),
                                          COMMON};

/* "_text" is the text part of a multimodal config. */
const apr_family apr_family_qwen3_5 = {.name = "qwen3_5",
                                       .types = {{"qwen3_5_text", "Qwen3_5ForCausalLM"}, {"qwen3_5", "Qwen3_5ForConditionalGeneration"}},
                                       .ggml = "qwen35",
                                       .gguf = {.more_keys = {KEYS}, .writes_sections = true},
                                       .config = &qwen3_5,
                                       COMMON,
                                       SPLIT};

const apr_family apr_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .types = {{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}, {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"}},
    .ggml = "qwen35moe",
    .gguf = {.more_keys = {KEYS}, .assumes = &with_experts, .writes_sections = true},
    .config = &qwen3_5_moe,
    COMMON,
    SPLIT};

#undef KEYS
#undef COMMON
#undef CONFIG
#undef EXPERTS

/* --- kimi_linear --- */

#define L   "model.layers.{}."
#define B   "blk.{}."
#define KDA L "self_attn."
#define MOE L "block_sparse_moe."
#define BY_HEAD                   \
    {                             \
        APR_STEP_UNSQUEEZE, { 3 } \
    } /* a convolution has four axes in a GGUF of llama.cpp's converter */

static const apr_tensor_rule kimi_tensors[] = {
    {KDA "k_proj.weight", B "attn_k.weight", APR_TENSOR_ROLE_ATTN_K},
    {KDA "v_proj.weight", B "attn_v.weight", APR_TENSOR_ROLE_ATTN_V},
    {KDA "q_conv1d.weight", B "ssm_conv1d_q.weight", APR_TENSOR_ROLE_SMALL, {BY_HEAD}},
    {KDA "k_conv1d.weight", B "ssm_conv1d_k.weight", APR_TENSOR_ROLE_SMALL, {BY_HEAD}},
    {KDA "v_conv1d.weight", B "ssm_conv1d_v.weight", APR_TENSOR_ROLE_SMALL, {BY_HEAD}},
    {KDA "f_a_proj.weight", B "ssm_f_a.weight", APR_TENSOR_ROLE_MATRIX},
    {KDA "f_b_proj.weight", B "ssm_f_b.weight", APR_TENSOR_ROLE_MATRIX},
    {KDA "g_a_proj.weight", B "ssm_g_a.weight", APR_TENSOR_ROLE_MATRIX},
    {KDA "g_b_proj.weight", B "ssm_g_b.weight", APR_TENSOR_ROLE_MATRIX},
    {KDA "b_proj.weight", B "ssm_beta.weight", APR_TENSOR_ROLE_DECAY},
    {KDA "A_log", B "ssm_a", APR_TENSOR_ROLE_SMALL, {APR_DECAY}},
    {KDA "dt_bias", B "ssm_dt.bias", APR_TENSOR_ROLE_SMALL},
    {KDA "o_norm.weight", B "ssm_norm.weight", APR_TENSOR_ROLE_SMALL},
    {MOE "gate.e_score_correction_bias", B "exp_probs_b.bias", APR_TENSOR_ROLE_SMALL},
    {MOE "shared_experts.gate_proj.weight", B "ffn_gate_shexp.weight", APR_TENSOR_ROLE_FFN_GATE},
    {MOE "shared_experts.up_proj.weight", B "ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP},
    {MOE "shared_experts.down_proj.weight", B "ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN},
};

/* transformers 5 also writes the dense layer's matrices under the experts' prefix. */
static const apr_tensor_form kimi_forms[] = {
    {APR_NAMING_HF, APR_FORM_READ, MOE "gate_proj.weight", NULL, {{L "mlp.gate_proj.weight", {{0}}}}},
    {APR_NAMING_HF, APR_FORM_READ, MOE "up_proj.weight", NULL, {{L "mlp.up_proj.weight", {{0}}}}},
    {APR_NAMING_HF, APR_FORM_READ, MOE "down_proj.weight", NULL, {{L "mlp.down_proj.weight", {{0}}}}},
};

/* The key and the value heads are the same ones. */
static void share_heads(apr_hparams *h)
{
    h->linear_num_key_heads = h->linear_num_value_heads;
    h->linear_key_head_dim = h->linear_value_head_dim;
}

/* The hub's config has the delta rule's sizes in an object of their own. */
static apr_status settle_kimi(const apr_config_reading *r)
{
    const cJSON *const own = apr_config_find(r, "linear_attn_config");
    const struct {
        const char *key;
        int64_t *value;
    } sizes[] = {{"head_dim", &r->h->linear_value_head_dim},
                 {"num_heads", &r->h->linear_num_value_heads},
                 {"short_conv_kernel_size", &r->h->linear_conv_kernel_dim}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) (void)apr_json_get_int(own, sizes[i].key, sizes[i].value);
    share_heads(r->h);
    return APR_OK;
}

/* full_attn_layers counts from 1. Without lists every fifth layer, but not the first one, has attention. */
static apr_status settle_kimi_layers(const apr_config_reading *r)
{
    const cJSON *const list = apr_json_get(apr_config_find(r, "linear_attn_config"), "full_attn_layers"), *item;
    const int64_t n = r->h->num_layers;
    int64_t layer;

    if (r->h->layer_kinds != NULL || n <= 0 || n > APR_MAX_LAYERS) return APR_OK;
    uint8_t *const kinds = apr_arena_alloc(r->arena, (size_t)n);
    if (kinds == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    for (int64_t i = 0; i < n; i++) kinds[i] = list == NULL && i > 0 && i % 4 == 0 ? APR_LAYER_FULL : APR_LAYER_LINEAR;
    cJSON_ArrayForEach(item, list)
    {
        if (!apr_json_as_int(item, &layer) || layer < 1 || layer > n)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: \"full_attn_layers\" names a layer that does not exist", r->where);
        kinds[layer - 1] = APR_LAYER_FULL;
    }
    r->h->layer_kinds = kinds;
    return APR_OK;
}

#define LAYER_TYPES "full_attention", "linear_attention"
#define LATENT \
    "kv_lora_rank", "q_lora_rank", "n_group", "routed_scaling_factor", "first_k_dense_replace", "mlp_layer_types", "num_shared_experts"
#define SPELLINGS                                                                                                        \
    {APR_FIELD(max_position_embeddings), "model_max_length"}, {APR_FIELD(num_experts_per_tok), "num_experts_per_token"}, \
        {APR_FIELD(num_shared_experts), "num_shared_experts"}, {APR_FIELD(num_expert_groups), "num_expert_group"},       \
        {APR_FIELD(norm_topk_prob), "moe_renormalize"}, {APR_FIELD(linear_num_value_heads), "linear_num_heads"},         \
        {APR_FIELD(linear_value_head_dim), "linear_head_dim"}, {APR_FIELD(linear_num_key_heads), ""},                    \
        {APR_FIELD(linear_key_head_dim), ""},                                                                            \
    {                                                                                                                    \
        APR_FIELD(head_dim), ""                                                                                          \
    }

static const apr_family_config kimi_linear = {.activation = "silu",
                                              .layer_types = APR_NAMES(LAYER_TYPES),
                                              .positions = APR_POSITIONS_NOWHERE,
                                              .experts = APR_EXPERTS_AFTER_DENSE,
                                              .dense_key = "first_k_dense_replace",
                                              .n_dense = 1,
                                              .spellings = {SPELLINGS, {APR_FIELD(max_position_embeddings), "max_position_embeddings"}},
                                              .computes = APR_NAMES(LATENT, "mla_use_nope", "linear_attn_config"),
                                              .refuses = APR_NAMES("attention_bias"),
                                              .requires = APR_NAMES("mla_use_nope"),
                                              .accepts = {{"moe_router_activation_func", APR_NAMES("sigmoid")}},
                                              .flags_on = APR_FLAG(norm_topk_prob),
                                              .num_kv_heads = 32,
                                              .max_position_embeddings = 1 << 20,
                                              .rms_norm_eps = 1e-5,
                                              .defaults = {.num_heads = 32,
                                                           .intermediate_size = 9216,
                                                           .vocab_size = 163840,
                                                           .kv_lora_rank = 512,
                                                           .qk_nope_head_dim = 128,
                                                           .qk_rope_head_dim = 64,
                                                           .v_head_dim = 128,
                                                           .num_experts = 256,
                                                           .num_experts_per_tok = 8,
                                                           .moe_intermediate_size = 1024,
                                                           .num_shared_experts = 1,
                                                           .num_expert_groups = 1,
                                                           .num_expert_groups_used = 1,
                                                           .routed_scaling_factor = 2.446,
                                                           .linear_num_value_heads = 32,
                                                           .linear_value_head_dim = 128,
                                                           .linear_conv_kernel_dim = 4},
                                              .settle = settle_kimi,
                                              .settle_layers = settle_kimi_layers};

static const apr_hparams kimi_assumes = {.norm_topk_prob = true};

const apr_family apr_family_kimi_linear = {
    .name = "kimi_linear",
    .types = {{"kimi_linear", "KimiLinearForCausalLM"}},
    .ggml = "kimi-linear",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(linear_conv_kernel_dim), APR_KEY(linear_value_head_dim), APR_KEY(q_lora_rank),
                           APR_KEY(kv_lora_rank), APR_KEY(rotary_dim), APR_KEY(key_length_mla), APR_KEY(v_head_dim),
                           APR_KEY(moe_intermediate_size), APR_KEY_ALWAYS(num_shared_experts), APR_KEY_ALWAYS(leading_dense_block_count),
                           APR_KEY(routed_scaling_factor)},
             .spellings = {{APR_KEY(linear_value_head_dim), "kda.head_dim"}},
             .assumes = &kimi_assumes,
             .nope = APR_NOPE_ALL,
             .score_function = 2,
             .channel_delta = true},
    .config = &kimi_linear,
    APR_OWN_TENSORS(kimi_tensors),
    APR_OWN_FORMS(kimi_forms),
    .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense, &apr_tensors_w_experts},
    .translates = true};

/* --- bailing_hybrid (Ling) --- */

#define ATTN L "attention."
#define MLP  L "mlp."

static const apr_tensor_rule ling_tensors[] = {
    {"model.word_embeddings.weight", NULL, APR_TENSOR_ROLE_EMBEDDING},
    {ATTN "q_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_Q},
    {ATTN "k_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_K},
    {ATTN "v_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_V},
    {ATTN "q_conv1d.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "k_conv1d.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "v_conv1d.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "f_proj.weight", NULL, APR_TENSOR_ROLE_MATRIX},
    {ATTN "g_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_GATE},
    {ATTN "b_proj.weight", NULL, APR_TENSOR_ROLE_DECAY},
    {ATTN "A_log", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "dt_bias", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "o_norm.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "dense.weight", NULL, APR_TENSOR_ROLE_ATTN_OUT},
    {ATTN "q_a_proj.weight", NULL, APR_TENSOR_ROLE_MATRIX},
    {ATTN "q_a_layernorm.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "q_b_proj.weight", NULL, APR_TENSOR_ROLE_MATRIX},
    {ATTN "kv_a_proj_with_mqa.weight", NULL, APR_TENSOR_ROLE_MATRIX},
    {ATTN "kv_a_layernorm.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {ATTN "kv_b_proj.weight", NULL, APR_TENSOR_ROLE_MATRIX},
    {MLP "gate.expert_bias", NULL, APR_TENSOR_ROLE_SMALL},
};

/* Where the delta rule's sizes are not stated they are those of attention. The unbounded decay is -exp(A_log) * softplus(x), as Kimi's. */
static apr_status settle_ling(const apr_config_reading *r)
{
    bool is_bounded = true;
    double bound = -5.0;

    APR_TRY(apr_config_bool(r, "kda_safe_gate", &is_bounded));
    APR_TRY(apr_config_real(r, apr_config_find(r, "kda_lower_bound"), "kda_lower_bound", &bound));
    if (is_bounded && !(bound < 0.0 && bound >= -1e6)) return apr_config_refuse(r, "its \"kda_lower_bound\" is %g", bound);
    r->h->kda_bound = is_bounded ? -bound : 0.0;
    if (!apr_config_has(r, "linear_head_dim")) APR_TRY(apr_config_int(r, "head_dim", &r->h->linear_value_head_dim));
    if (!apr_config_has(r, "linear_num_heads")) r->h->linear_num_value_heads = r->h->num_heads;
    share_heads(r->h);
    return APR_OK;
}

/* The last layer of each group has attention. */
static apr_status settle_ling_layers(const apr_config_reading *r)
{
    int64_t each = 6;
    const int64_t n = r->h->num_layers;

    APR_TRY(apr_config_int(r, "layer_group_size", &each));
    if (r->h->layer_kinds != NULL || n <= 0 || n > APR_MAX_LAYERS) return APR_OK;
    if (each <= 0) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"layer_group_size\" is %lld", r->where, (long long)each);
    uint8_t *const kinds = apr_arena_alloc(r->arena, (size_t)n);
    if (kinds == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    for (int64_t i = 0; i < n; i++) kinds[i] = (i + 1) % each == 0 ? APR_LAYER_FULL : APR_LAYER_LINEAR;
    r->h->layer_kinds = kinds;
    return APR_OK;
}

static void put_bound(apr_json_text *out, const apr_hparams *h)
{
    apr_json_bool(out, "kda_safe_gate", h->kda_bound > 0.0);
    if (h->kda_bound > 0.0) apr_json_real(out, "kda_lower_bound", -h->kda_bound);
}

static const apr_family_config bailing_hybrid = {.activation = "silu",
                                                 .layer_types = APR_NAMES(LAYER_TYPES),
                                                 .experts = APR_EXPERTS_AFTER_DENSE,
                                                 .dense_key = "first_k_dense_replace",
                                                 .n_dense = 2,
                                                 .spellings = {SPELLINGS,
                                                               {APR_FIELD(num_nextn_layers), "num_nextn_predict_layers"},
                                                               {APR_FIELD(linear_conv_kernel_dim), "short_conv_kernel_size"}},
                                                 .computes = APR_NAMES(LATENT, "kda_safe_gate", "kda_lower_bound", "layer_group_size"),
                                                 .refuses = APR_NAMES("attention_bias"),
                                                 .flags_on = APR_FLAG(norm_topk_prob),
                                                 .num_kv_heads = 32,
                                                 .max_position_embeddings = 262144,
                                                 .rms_norm_eps = 1e-6,
                                                 .rope_theta = 6e6,
                                                 .defaults = {.num_heads = 32,
                                                              .intermediate_size = 6144,
                                                              .vocab_size = 157184,
                                                              .kv_lora_rank = 512,
                                                              .qk_nope_head_dim = 128,
                                                              .qk_rope_head_dim = 64,
                                                              .v_head_dim = 128,
                                                              .num_experts = 512,
                                                              .num_experts_per_tok = 8,
                                                              .moe_intermediate_size = 768,
                                                              .num_shared_experts = 1,
                                                              .num_expert_groups = 8,
                                                              .num_expert_groups_used = 4,
                                                              .routed_scaling_factor = 2.5,
                                                              .linear_num_value_heads = 32,
                                                              .linear_value_head_dim = 128,
                                                              .linear_conv_kernel_dim = 4},
                                                 .settle = settle_ling,
                                                 .settle_layers = settle_ling_layers,
                                                 .put_own = put_bound};

/* llama.cpp has no architecture of it. */
const apr_family apr_family_bailing_hybrid = {
    .name = "bailing_hybrid",
    .types = {{"bailing_hybrid", "BailingHybridForCausalLM"}},
    .config = &bailing_hybrid,
    APR_OWN_TENSORS(ling_tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_ffn_norm, &apr_tensors_dense, &apr_tensors_experts, &apr_tensors_shared_experts},
    .translates = false};
