/* family_nemotron.c - nemotron_h: one mixer a layer: Mamba 2, attention without positions, feed-forward or experts. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

#define L     "backbone.layers.{}."
#define B     "blk.{}."
#define MIXER L "mixer."

/* Attention has no positions; llama.cpp's converter moves q and k as if it had. */
static const apr_tensor_rule tensors[] = {
    {"backbone.embeddings.weight", "token_embd.weight", APR_FOR_EMBEDDING},
    {"backbone.norm_f.weight", "output_norm.weight", APR_FOR_SMALL},
    {"lm_head.weight", "output.weight", APR_FOR_HEAD},
    {L "norm.weight", B "attn_norm.weight", APR_FOR_SMALL},
    {MIXER "in_proj.weight", B "ssm_in.weight", APR_FOR_MATRIX},
    {MIXER "conv1d.weight", B "ssm_conv1d.weight", APR_FOR_SMALL, {APR_CONVOLUTION}},
    {MIXER "conv1d.bias", B "ssm_conv1d.bias", APR_FOR_SMALL},
    {MIXER "A_log", B "ssm_a", APR_FOR_SMALL, {APR_DECAY, APR_AS_COLUMN}},
    {MIXER "D", B "ssm_d", APR_FOR_SMALL, {APR_AS_COLUMN}},
    {MIXER "dt_bias", B "ssm_dt.bias", APR_FOR_SMALL},
    {MIXER "norm.weight", B "ssm_norm.weight", APR_FOR_SMALL, {{APR_STEP_UNFOLD, {0, APR_OF_KEY_HEADS}}}},
    {MIXER "out_proj.weight", B "ssm_out.weight", APR_FOR_MATRIX},
    {MIXER "q_proj.weight", B "attn_q.weight", APR_FOR_ATTN_Q, {APR_ROTARY(HEADS)}},
    {MIXER "k_proj.weight", B "attn_k.weight", APR_FOR_ATTN_K, {APR_ROTARY(KV_HEADS)}},
    {MIXER "v_proj.weight", B "attn_v.weight", APR_FOR_ATTN_V},
    {MIXER "o_proj.weight", B "attn_output.weight", APR_FOR_ATTN_OUT},
    {MIXER "up_proj.weight", B "ffn_up.weight", APR_FOR_FFN_UP},
    {MIXER "down_proj.weight", B "ffn_down.weight", APR_FOR_FFN_DOWN},
    {MIXER "gate.weight", B "ffn_gate_inp.weight", APR_FOR_ROUTER},
    {MIXER "gate.e_score_correction_bias", B "exp_probs_b.bias", APR_FOR_SMALL},
    {MIXER "experts.*.up_proj.weight", B "ffn_up_exps.weight", APR_FOR_FFN_UP},
    {MIXER "experts.*.down_proj.weight", B "ffn_down_exps.weight", APR_FOR_FFN_DOWN},
    {MIXER "shared_experts.up_proj.weight", B "ffn_up_shexp.weight", APR_FOR_FFN_UP},
    {MIXER "shared_experts.down_proj.weight", B "ffn_down_shexp.weight", APR_FOR_FFN_DOWN},
    {MIXER "fc1_latent_proj.weight", B "ffn_latent_down.weight", APR_FOR_MATRIX},
    {MIXER "fc2_latent_proj.weight", B "ffn_latent_up.weight", APR_FOR_MATRIX},
};

const apr_family apr_family_nemotron_h = {.name = "nemotron_h",
                                          .types = {{"nemotron_h", "NemotronHForCausalLM"}},
                                          .ggml = "nemotron_h_moe",
                                          .gguf = {.rotates_pairs = true},
                                          .tensors = tensors,
                                          .n_tensors = sizeof tensors / sizeof *tensors,
                                          .translates = true};
