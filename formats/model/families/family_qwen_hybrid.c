/* family_qwen_hybrid.c - qwen3_next, qwen3_5 and qwen3_5_moe: gated delta-net layers between layers of gated attention.
 *
 * Between the dialects more than names differs: norms are written plus one, A_log as -exp, convolutions squeezed, value heads in
 * another order where there are more of them than key heads. */
#include "formats/model/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_FOR_EMBEDDING},
    {"model.norm.weight", "output_norm.weight", APR_FOR_SMALL},
    {"lm_head.weight", "output.weight", APR_FOR_HEAD},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", APR_FOR_ATTN_Q},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", APR_FOR_ATTN_K},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", APR_FOR_ATTN_V},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", APR_FOR_ATTN_OUT},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight", APR_FOR_ATTN_QKV},
    {"model.layers.{}.linear_attn.in_proj_z.weight", "blk.{}.attn_gate.weight", APR_FOR_ATTN_GATE},
    {"model.layers.{}.linear_attn.in_proj_qkvz.weight", NULL, APR_FOR_ATTN_QKV},
    {"model.layers.{}.linear_attn.in_proj_a.weight", "blk.{}.ssm_alpha.weight", APR_FOR_OTHER},
    {"model.layers.{}.linear_attn.in_proj_b.weight", "blk.{}.ssm_beta.weight", APR_FOR_OTHER},
    {"model.layers.{}.linear_attn.in_proj_ba.weight", "blk.{}.ssm_ba.weight", APR_FOR_OTHER},
    {"model.layers.{}.linear_attn.conv1d.weight", "blk.{}.ssm_conv1d.weight", APR_FOR_SMALL},
    {"model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a", APR_FOR_SMALL},
    {"model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias", APR_FOR_SMALL},
    {"model.layers.{}.linear_attn.norm.weight", "blk.{}.ssm_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.linear_attn.out_proj.weight", "blk.{}.ssm_out.weight", APR_FOR_ATTN_OUT},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight", APR_FOR_ROUTER},
    {"model.layers.{}.mlp.experts.*.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.experts.*.up_proj.weight", "blk.{}.ffn_up_exps.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.experts.*.down_proj.weight", "blk.{}.ffn_down_exps.weight", APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.experts.down_proj", NULL, APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight", APR_FOR_ROUTER},
    {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight", APR_FOR_FFN_DOWN},
};

#define KEYS                                                                                                       \
    " expert_feed_forward_length expert_shared_feed_forward_length ssm.conv_kernel ssm.state_size ssm.group_count" \
    " ssm.time_step_rank ssm.inner_size full_attention_interval rope.dimension_count nextn_predict_layers "

#define COMMON                                                                                            \
    .norms_add_one = true, .config = &config, .text_prefix = "model.language_model.", .tensors = tensors, \
    .n_tensors = sizeof tensors / sizeof *tensors

#define HYBRID APR_PROGRAM_hybrid, .qk_norm = true, .gated = true, .linear_layers = true

static const apr_family_config config = {.activation = "silu",
                                         .attention_bias = APR_BIAS_WHEN_STATED,
                                         .computes = " attn_output_gate use_gated_attention qk_layernorm use_qk_norm qk_norm ",
                                         .head_dim = 256,
                                         .max_position_embeddings = 32768,
                                         .rms_norm_eps = 1e-6,
                                         .partial_rotary_factor = 0.25};

static const apr_hparams with_experts = {.norm_topk_prob = true};

const apr_family apr_family_qwen3_next = {.name = "qwen3_next",
                                          .types = {{"qwen3_next", "Qwen3NextForCausalLM"}},
                                          .ggml = "qwen3next",
                                          .gguf = {.more_keys = KEYS, .supposes = &with_experts},
                                          COMMON};

/* "_text" is the text part of a multimodal config */
const apr_family apr_family_qwen3_5 = {.name = "qwen3_5",
                                       .types = {{"qwen3_5_text", "Qwen3_5ForCausalLM"}, {"qwen3_5", "Qwen3_5ForConditionalGeneration"}},
                                       .ggml = "qwen35",
                                       .gguf = {.more_keys = KEYS, .writes_sections = true},
                                       .program = {HYBRID},
                                       COMMON};

const apr_family apr_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .types = {{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}, {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"}},
    .ggml = "qwen35moe",
    .gguf = {.more_keys = KEYS, .supposes = &with_experts, .writes_sections = true},
    .program = {HYBRID, .router = "mlp.gate", .stacked = true},
    COMMON};
