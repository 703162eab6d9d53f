/* family_nemotron.c - nemotron_h: one mixer per layer: Mamba 2, attention without positions, feed-forward or experts. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define L "backbone.layers.{}."

#define B "blk.{}."

#define MIXER L "mixer."

/* Attention has no positions, but llama.cpp's converter permutes q and k as if it had. */
static const apr_tensor_rule tensors[] = {
    {"backbone.embeddings.weight", "token_embd.weight", APR_TENSOR_ROLE_EMBEDDING},
    {"backbone.norm_f.weight", "output_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"lm_head.weight", "output.weight", APR_TENSOR_ROLE_HEAD},
    {L "norm.weight", B "attn_norm.weight", APR_TENSOR_ROLE_SMALL},
    {MIXER "in_proj.weight", B "ssm_in.weight", APR_TENSOR_ROLE_MATRIX},
    {MIXER "conv1d.weight", B "ssm_conv1d.weight", APR_TENSOR_ROLE_SMALL, {APR_CONVOLUTION}},
    {MIXER "conv1d.bias", B "ssm_conv1d.bias", APR_TENSOR_ROLE_SMALL},
    {MIXER "A_log", B "ssm_a", APR_TENSOR_ROLE_SMALL, {APR_DECAY, APR_AS_COLUMN}},
    {MIXER "D", B "ssm_d", APR_TENSOR_ROLE_SMALL, {APR_AS_COLUMN}},
    {MIXER "dt_bias", B "ssm_dt.bias", APR_TENSOR_ROLE_SMALL},
    {MIXER "norm.weight", B "ssm_norm.weight", APR_TENSOR_ROLE_SMALL, {{APR_STEP_UNFOLD, {0, APR_OF_KEY_HEADS}}}},
    {MIXER "out_proj.weight", B "ssm_out.weight", APR_TENSOR_ROLE_MATRIX},
    {MIXER "q_proj.weight", B "attn_q.weight", APR_TENSOR_ROLE_ATTN_Q, {APR_ROTARY(HEADS)}},
    {MIXER "k_proj.weight", B "attn_k.weight", APR_TENSOR_ROLE_ATTN_K, {APR_ROTARY(KV_HEADS)}},
    {MIXER "v_proj.weight", B "attn_v.weight", APR_TENSOR_ROLE_ATTN_V},
    {MIXER "o_proj.weight", B "attn_output.weight", APR_TENSOR_ROLE_ATTN_OUT},
    {MIXER "up_proj.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {MIXER "down_proj.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {MIXER "gate.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {MIXER "gate.e_score_correction_bias", B "exp_probs_b.bias", APR_TENSOR_ROLE_SMALL},
    {MIXER "experts.*.up_proj.weight", B "ffn_up_exps.weight", APR_TENSOR_ROLE_FFN_UP},
    {MIXER "experts.*.down_proj.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {MIXER "shared_experts.up_proj.weight", B "ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP},
    {MIXER "shared_experts.down_proj.weight", B "ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {MIXER "fc1_latent_proj.weight", B "ffn_latent_down.weight", APR_TENSOR_ROLE_MATRIX},
    {MIXER "fc2_latent_proj.weight", B "ffn_latent_up.weight", APR_TENSOR_ROLE_MATRIX},
};

static const apr_family_config nemotron_h = {.activation = "relu2",
                                             .activation_key = "mlp_hidden_act",
                                             .layer_types = " linear_attention full_attention mamba attention moe mlp ",
                                             .mamba = true,
                                             .experts = APR_EXPERTS_BY_BLOCK,
                                             .positions = APR_POSITIONS_NOWHERE,
                                             .attention_bias = APR_BIAS_WHEN_STATED,
                                             .spellings = {{"rms_norm_eps", "layer_norm_epsilon"},
                                                           {"num_experts", "n_routed_experts"},
                                                           {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
                                                           {"linear_num_value_heads", "mamba_num_heads"},
                                                           {"linear_value_head_dim", "mamba_head_dim"},
                                                           {"linear_num_key_heads", "n_groups"},
                                                           {"linear_num_key_heads", "mamba_n_groups"},
                                                           {"linear_key_head_dim", "ssm_state_size"},
                                                           {"linear_conv_kernel_dim", "conv_kernel"},
                                                           {"linear_conv_kernel_dim", "mamba_d_conv"},
                                                           {"head_dim", "head_dim"},
                                                           {"head_dim", "attention_head_dim"}},
                                             .computes = " moe_latent_size n_group routed_scaling_factor n_shared_experts ",
                                             .refuses = " use_bias ",
                                             .accepts = {{"scoring_func", " sigmoid "}},
                                             .flags_on = APR_FLAG(norm_topk_prob),
                                             .num_kv_heads = 8,
                                             .head_dim = 128,
                                             .max_position_embeddings = 4096,
                                             .rms_norm_eps = 1e-5,
                                             .defaults = {{"num_heads", 32},
                                                          {"intermediate_size", 21504},
                                                          {"vocab_size", 131072},
                                                          {"linear_num_value_heads", 128},
                                                          {"linear_value_head_dim", 64},
                                                          {"linear_num_key_heads", 8},
                                                          {"linear_key_head_dim", 128},
                                                          {"linear_conv_kernel_dim", 4},
                                                          {"num_experts", 8},
                                                          {"num_experts_per_tok", 2},
                                                          {"moe_intermediate_size", 7688},
                                                          {"shared_expert_intermediate_size", 7688},
                                                          {"num_shared_experts", 1},
                                                          {"num_expert_groups", 1},
                                                          {"num_expert_groups_used", 1},
                                                          {"routed_scaling_factor", 1.0}}};

const apr_family apr_family_nemotron_h = {
    .name = "nemotron_h",
    .types = {{"nemotron_h", "NemotronHForCausalLM"}},
    .ggml = "nemotron_h_moe",
    .gguf = {.keys = " block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv"
                     " attention.layer_norm_rms_epsilon attention.layer_norm_epsilon expert_count expert_used_count expert_group_count"
                     " expert_group_used_count ",
             .more_keys = " vocab_size rope.dimension_count ssm.conv_kernel ssm.state_size ssm.group_count ssm.inner_size"
                          " ssm.time_step_rank rope.scaling.finetuned attention.key_length attention.value_length"
                          " expert_feed_forward_length expert_shared_feed_forward_length expert_shared_count expert_weights_norm"
                          " expert_weights_scale moe_latent_size ",
             .name_without_experts = "nemotron_h",
             .nope = APR_NOPE_ALL,
             .eps = APR_EPS_BOTH,
             .rotates_pairs = true},
    .config = &nemotron_h,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .translates = true};
