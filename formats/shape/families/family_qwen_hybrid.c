/* family_qwen_hybrid.c - qwen3_next, qwen3_5 and qwen3_5_moe: gated delta-net layers between layers of gated attention.
 *
 * The naming schemes differ in more than names: ggml stores norms plus one, A_log as -exp, and convolutions squeezed. Where there are
 * more value heads than key heads it also stores value heads in another order. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define KEYS                                                                                                       \
    " expert_feed_forward_length expert_shared_feed_forward_length ssm.conv_kernel ssm.state_size ssm.group_count" \
    " ssm.time_step_rank ssm.inner_size full_attention_interval rope.dimension_count nextn_predict_layers "

#define COMMON                                                                                                                      \
    .norms_add_one = true, .translates = true,                                                                                      \
    .sets = {&linear_set,        &apr_tensors_ends,    &apr_tensors_attention,    &apr_tensors_qk_norm, &apr_tensors_ffn_post_norm, \
             &apr_tensors_dense, &apr_tensors_experts, &apr_tensors_shared_expert}

#define SPLIT .tensors = split, .n_tensors = sizeof split / sizeof *split, .tiles_value_heads = true

#define CONFIG                                                                                                                 \
    .activation = "silu", .layer_types = " full_attention linear_attention ", .attention_bias = APR_BIAS_WHEN_STATED,          \
    .computes = " attn_output_gate use_gated_attention qk_layernorm use_qk_norm qk_norm decoder_sparse_step mlp_only_layers ", \
    .head_dim = 256, .max_position_embeddings = 32768, .rms_norm_eps = 1e-6, .partial_rotary_factor = 0.25

#define LINEAR                                                                                                                   \
    {"full_attention_interval", 4}, {"linear_conv_kernel_dim", 4}, {"linear_key_head_dim", 128}, {"linear_value_head_dim", 128}, \
        {"linear_num_key_heads", 16},                                                                                            \
    {                                                                                                                            \
        "linear_num_value_heads", 32                                                                                             \
    }

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

#define EXPERTS(n, used) \
    {"num_experts", n}, {"num_experts_per_tok", used}, {"moe_intermediate_size", 512}, { "shared_expert_intermediate_size", 512 }

static const apr_family_config qwen3_next = {
    CONFIG, .experts = APR_EXPERTS_BY_STEP, .flags_on = " norm_topk_prob ", .num_kv_heads = 2,
    .defaults = {LINEAR, {"num_heads", 16}, {"intermediate_size", 5632}, {"vocab_size", 151936}, EXPERTS(512, 10)}};

static const apr_family_config qwen3_5 = {CONFIG, .num_kv_heads = 4,
                                          .defaults = {LINEAR, {"num_heads", 16}, {"intermediate_size", 12288}, {"vocab_size", 248320}}};

static const apr_family_config qwen3_5_moe = {CONFIG, .flags_always = " norm_topk_prob ", .num_kv_heads = 2,
                                              .defaults = {LINEAR, {"num_heads", 16}, {"vocab_size", 248320}, EXPERTS(256, 8)}};

static const apr_hparams with_experts = {.norm_topk_prob = true};

const apr_family apr_family_qwen3_next = {.name = "qwen3_next",
                                          .types = {{"qwen3_next", "Qwen3NextForCausalLM"}},
                                          .ggml = "qwen3next",
                                          .gguf = {.more_keys = KEYS, .assumes = &with_experts},
                                          .config = &qwen3_next,
                                          .tensors = by_key_head,
                                          .n_tensors = sizeof by_key_head / sizeof *by_key_head,
                                          .forms = key_head_forms,
                                          .n_forms = sizeof key_head_forms / sizeof *key_head_forms,
                                          COMMON};

/* "_text" is the text part of a multimodal config. */
const apr_family apr_family_qwen3_5 = {.name = "qwen3_5",
                                       .types = {{"qwen3_5_text", "Qwen3_5ForCausalLM"}, {"qwen3_5", "Qwen3_5ForConditionalGeneration"}},
                                       .ggml = "qwen35",
                                       .gguf = {.more_keys = KEYS, .writes_sections = true},
                                       .config = &qwen3_5,
                                       COMMON,
                                       SPLIT};

const apr_family apr_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .types = {{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}, {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"}},
    .ggml = "qwen35moe",
    .gguf = {.more_keys = KEYS, .assumes = &with_experts, .writes_sections = true},
    .config = &qwen3_5_moe,
    COMMON,
    SPLIT};
