/* family_qwen_hybrid.c - qwen3_next, qwen3_5 and qwen3_5_moe: gated delta-net layers between layers of gated attention.
 *
 * Between the dialects more than names differs: norms are written plus one, A_log as -exp, convolutions squeezed, value heads in
 * another order where there are more of them than key heads. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

#define DELTA "model.layers.{}.linear_attn."

/* What the three have alike. Value heads move only where the card says that ggml deals them out in turn. */
static const apr_tensor_rule linear[] = {
    {DELTA "conv1d.weight", "blk.{}.ssm_conv1d.weight", APR_FOR_SMALL, {APR_CONVOLUTION, APR_TILED(1, APR_OF_TWICE_KEYS)}},
    {DELTA "A_log", "blk.{}.ssm_a", APR_FOR_SMALL, {APR_TILED(0, 0), APR_DECAY}},
    {DELTA "dt_bias", "blk.{}.ssm_dt.bias", APR_FOR_SMALL, {APR_TILED(0, 0)}},
    {DELTA "norm.weight", "blk.{}.ssm_norm.weight", APR_FOR_SMALL},
    {DELTA "out_proj.weight", "blk.{}.ssm_out.weight", APR_FOR_MATRIX, {APR_TILED(0, 0)}},
    {DELTA "in_proj_qkv.weight", "blk.{}.attn_qkv.weight", APR_FOR_ATTN_QKV, {APR_TILED(1, APR_OF_TWICE_KEYS)}},
    {DELTA "in_proj_z.weight", "blk.{}.attn_gate.weight", APR_FOR_ATTN_GATE, {APR_TILED(1, 0)}},
};
static const apr_tensor_set linear_set = {.rules = linear, .n_rules = sizeof linear / sizeof *linear};

static const apr_tensor_rule split[] = {
    {DELTA "in_proj_a.weight", "blk.{}.ssm_alpha.weight", APR_FOR_DECAY, {APR_TILED(1, 0)}},
    {DELTA "in_proj_b.weight", "blk.{}.ssm_beta.weight", APR_FOR_DECAY, {APR_TILED(1, 0)}},
};

/* qwen3_next has what a key head needs together: its query, its key, the values and gates that share it. */
static const apr_tensor_rule by_key_head[] = {
    {DELTA "in_proj_qkvz.weight", NULL, APR_FOR_ATTN_QKV},
    {DELTA "in_proj_ba.weight", "blk.{}.ssm_ba.weight", APR_FOR_DECAY},
};
static const apr_tensor_form key_head_forms[] = {
    {APR_DIALECT_HF,
     APR_FORM_WHOLE,
     DELTA "in_proj_qkvz.weight",
     NULL,
     {{DELTA "in_proj_q.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, 0, APR_OF_KEY_WIDTH}}}},
      {DELTA "in_proj_k.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, APR_OF_KEY_WIDTH, APR_OF_KEY_WIDTH}}}},
      {DELTA "in_proj_v.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, APR_OF_TWICE_WIDTH, APR_OF_VALUES_WIDTH}}}},
      {DELTA "in_proj_z.weight", {{APR_STEP_TAKE, {1, APR_OF_KEY_HEADS, APR_OF_GATE_PLACE, APR_OF_VALUES_WIDTH}}}}}},
    {APR_DIALECT_GGML,
     APR_FORM_WHOLE,
     DELTA "in_proj_qkv.weight",
     NULL,
     {{DELTA "in_proj_q.weight", {{APR_STEP_TAKE, {1, 1, 0, APR_OF_KEYS}}}},
      {DELTA "in_proj_k.weight", {{APR_STEP_TAKE, {1, 1, APR_OF_KEYS, APR_OF_KEYS}}}},
      {DELTA "in_proj_v.weight", {{APR_STEP_TAKE, {1, 1, APR_OF_TWICE_KEYS, APR_OF_VALUES}}}}}},
};

#define COMMON                                                                                                                      \
    .norms_add_one = true, .config = &config, .text_prefix = "model.language_model.", .translates = true,                           \
    .sets = {&linear_set,        &apr_tensors_ends,    &apr_tensors_attention,    &apr_tensors_qk_norm, &apr_tensors_ffn_post_norm, \
             &apr_tensors_dense, &apr_tensors_experts, &apr_tensors_shared_expert}

#define SPLIT .tensors = split, .n_tensors = sizeof split / sizeof *split, .tiles_value_heads = true

#define HYBRID APR_PROGRAM_hybrid, .qk_norm = true, .gated = true, .linear_layers = true

static const apr_family_config config = {.activation = "silu",
                                         .attention_bias = APR_BIAS_WHEN_STATED,
                                         .computes = " attn_output_gate use_gated_attention qk_layernorm use_qk_norm qk_norm ",
                                         .head_dim = 256,
                                         .max_position_embeddings = 32768,
                                         .rms_norm_eps = 1e-6,
                                         .partial_rotary_factor = 0.25};

const apr_family apr_family_qwen3_next = {.name = "qwen3_next",
                                          .types = {{"qwen3_next", "Qwen3NextForCausalLM"}},
                                          .ggml = "qwen3next",
                                          .tensors = by_key_head,
                                          .n_tensors = sizeof by_key_head / sizeof *by_key_head,
                                          .forms = key_head_forms,
                                          .n_forms = sizeof key_head_forms / sizeof *key_head_forms,
                                          COMMON};

/* "_text" is the text part of a multimodal config */
const apr_family apr_family_qwen3_5 = {.name = "qwen3_5",
                                       .types = {{"qwen3_5_text", "Qwen3_5ForCausalLM"}, {"qwen3_5", "Qwen3_5ForConditionalGeneration"}},
                                       .ggml = "qwen35",
                                       .gguf = {.writes_rotary_dim = true, .writes_sections = true},
                                       .program = {HYBRID},
                                       SPLIT,
                                       COMMON};

const apr_family apr_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .types = {{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}, {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"}},
    .ggml = "qwen35moe",
    .gguf = {.writes_rotary_dim = true, .writes_sections = true},
    .program = {HYBRID, .router = "mlp.gate", .stacked = true},
    SPLIT,
    COMMON};
