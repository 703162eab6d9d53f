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

#define COMMON \
    .norms_add_one = true, .text_prefix = "model.language_model.", .tensors = tensors, .n_tensors = sizeof tensors / sizeof *tensors

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
#define EXPERTS(n, used) \
    {"num_experts", n}, {"num_experts_per_tok", used}, {"moe_intermediate_size", 512}, { "shared_expert_intermediate_size", 512 }

static const apr_family_config qwen3_next = {
    CONFIG, .experts = APR_EXPERTS_BY_STEP, .flags_on = " norm_topk_prob ", .num_kv_heads = 2,
    .defaults = {LINEAR, {"num_heads", 16}, {"intermediate_size", 5632}, {"vocab_size", 151936}, EXPERTS(512, 10)}};
static const apr_family_config qwen3_5 = {CONFIG, .num_kv_heads = 4,
                                          .defaults = {LINEAR, {"num_heads", 16}, {"intermediate_size", 12288}, {"vocab_size", 248320}}};
static const apr_family_config qwen3_5_moe = {CONFIG, .flags_always = " norm_topk_prob ", .num_kv_heads = 2,
                                              .defaults = {LINEAR, {"num_heads", 16}, {"vocab_size", 248320}, EXPERTS(256, 8)}};

const apr_family apr_family_qwen3_next = {
    .name = "qwen3_next", .types = {{"qwen3_next", "Qwen3NextForCausalLM"}}, .ggml = "qwen3next", .config = &qwen3_next, COMMON};

/* "_text" is the text part of a multimodal config */
const apr_family apr_family_qwen3_5 = {.name = "qwen3_5",
                                       .types = {{"qwen3_5_text", "Qwen3_5ForCausalLM"}, {"qwen3_5", "Qwen3_5ForConditionalGeneration"}},
                                       .ggml = "qwen35",
                                       .config = &qwen3_5,
                                       .gguf = {.writes_rotary_dim = true, .writes_sections = true},
                                       COMMON};

const apr_family apr_family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .types = {{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}, {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"}},
    .ggml = "qwen35moe",
    .config = &qwen3_5_moe,
    .gguf = {.writes_rotary_dim = true, .writes_sections = true},
    COMMON};
