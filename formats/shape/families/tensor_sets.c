/* tensor_sets.c - the rules of tensor_sets.h. */
#include "formats/shape/families/tensor_sets.h"

#define L "model.layers.{}."
#define B "blk.{}."

#define SET(name, list) const apr_tensor_set apr_tensors_##name = {.rules = list, .n_rules = sizeof list / sizeof *list}
#define SET_WITH_FORMS(name, list, others) \
    const apr_tensor_set apr_tensors_##name = {list, sizeof list / sizeof *list, others, sizeof others / sizeof *others}

static const apr_tensor_rule ends[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_TENSOR_ROLE_EMBEDDING},
    {"model.norm.weight", "output_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}},
    {"lm_head.weight", "output.weight", APR_TENSOR_ROLE_HEAD},
    {L "input_layernorm.weight", B "attn_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}},
};
SET(ends, ends);

static const apr_tensor_rule norm_biases[] = {
    {"model.norm.bias", "output_norm.bias", APR_TENSOR_ROLE_SMALL},
    {L "input_layernorm.bias", B "attn_norm.bias", APR_TENSOR_ROLE_SMALL},
    {L "post_attention_layernorm.bias", B "ffn_norm.bias", APR_TENSOR_ROLE_SMALL},
};
SET(norm_biases, norm_biases);

static const apr_tensor_rule attention[] = {
    {L "self_attn.q_proj.weight", B "attn_q.weight", APR_TENSOR_ROLE_ATTN_Q, {APR_ROTARY(HEADS)}},
    {L "self_attn.q_proj.bias", B "attn_q.bias", APR_TENSOR_ROLE_SMALL, {APR_ROTARY(HEADS)}},
    {L "self_attn.k_proj.weight", B "attn_k.weight", APR_TENSOR_ROLE_ATTN_K, {APR_ROTARY(KV_HEADS)}},
    {L "self_attn.k_proj.bias", B "attn_k.bias", APR_TENSOR_ROLE_SMALL, {APR_ROTARY(KV_HEADS)}},
    {L "self_attn.v_proj.weight", B "attn_v.weight", APR_TENSOR_ROLE_ATTN_V},
    {L "self_attn.v_proj.bias", B "attn_v.bias", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.o_proj.weight", B "attn_output.weight", APR_TENSOR_ROLE_ATTN_OUT},
    {L "self_attn.o_proj.bias", B "attn_output.bias", APR_TENSOR_ROLE_SMALL},
};
SET(attention, attention);

static const apr_tensor_rule qk_norm[] = {
    {L "self_attn.q_norm.weight", B "attn_q_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}},
    {L "self_attn.k_norm.weight", B "attn_k_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}},
};
SET(qk_norm, qk_norm);

static const apr_tensor_rule ffn_norm[] = {
    {L "post_attention_layernorm.weight", B "ffn_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}}};
SET(ffn_norm, ffn_norm);

static const apr_tensor_rule ffn_post_norm[] = {
    {L "post_attention_layernorm.weight", B "post_attention_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}}};
SET(ffn_post_norm, ffn_post_norm);

static const apr_tensor_rule sandwich_norms[] = {
    {L "post_attention_layernorm.weight", B "post_attention_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}},
    {L "pre_feedforward_layernorm.weight", B "ffn_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}},
    {L "post_feedforward_layernorm.weight", B "post_ffw_norm.weight", APR_TENSOR_ROLE_SMALL, {APR_PLUS_ONE}},
};
SET(sandwich_norms, sandwich_norms);

static const apr_tensor_rule dense[] = {
    {L "mlp.gate_proj.weight", B "ffn_gate.weight", APR_TENSOR_ROLE_FFN_GATE},
    {L "mlp.gate_proj.bias", B "ffn_gate.bias", APR_TENSOR_ROLE_SMALL},
    {L "mlp.up_proj.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {L "mlp.up_proj.bias", B "ffn_up.bias", APR_TENSOR_ROLE_SMALL},
    {L "mlp.down_proj.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {L "mlp.down_proj.bias", B "ffn_down.bias", APR_TENSOR_ROLE_SMALL},
};
SET(dense, dense);

/* ---- experts ---- */

#define EXPERTS L "mlp.experts.*."
static const apr_tensor_rule experts[] = {
    {L "mlp.gate.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {EXPERTS "gate_proj.weight", B "ffn_gate_exps.weight", APR_TENSOR_ROLE_FFN_GATE},
    {EXPERTS "up_proj.weight", B "ffn_up_exps.weight", APR_TENSOR_ROLE_FFN_UP},
    {EXPERTS "down_proj.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
};
static const apr_tensor_form expert_forms[] = {
    {APR_NAMING_HF, APR_FORM_READ, L "mlp.experts.gate_up_proj", NULL, APR_GATE_AND_UP(EXPERTS)},
    {APR_NAMING_HF, APR_FORM_READ, L "mlp.experts.down_proj", NULL, {{EXPERTS "down_proj.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_gate_up_exps.weight", NULL, APR_GATE_AND_UP(EXPERTS)},
};
SET_WITH_FORMS(experts, experts, expert_forms);

#define MOE L "block_sparse_moe."
static const apr_tensor_rule w_experts[] = {
    {MOE "gate.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {MOE "e_score_correction_bias", B "exp_probs_b.bias", APR_TENSOR_ROLE_SMALL},
    {MOE "experts.*.w1.weight", B "ffn_gate_exps.weight", APR_TENSOR_ROLE_FFN_GATE},
    {MOE "experts.*.w3.weight", B "ffn_up_exps.weight", APR_TENSOR_ROLE_FFN_UP},
    {MOE "experts.*.w2.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
};
static const apr_tensor_form w_forms[] = {
    {APR_NAMING_HF, APR_FORM_READ, L "mlp.gate.weight", NULL, {{MOE "gate.weight", {{0}}}}},
    {APR_NAMING_HF, APR_FORM_READ, L "mlp.e_score_correction_bias", NULL, {{MOE "e_score_correction_bias", {{0}}}}},
    {APR_NAMING_HF, APR_FORM_READ, L "mlp.experts.gate_up_proj", NULL, APR_W1_AND_W3(MOE "experts.*.")},
    {APR_NAMING_HF, APR_FORM_READ, L "mlp.experts.down_proj", NULL, {{MOE "experts.*.w2.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_gate_up_exps.weight", NULL, APR_W1_AND_W3(MOE "experts.*.")},
    {APR_NAMING_GGML, APR_FORM_READ, B "exp_probs_b", NULL, {{MOE "e_score_correction_bias", {{0}}}}},
};
SET_WITH_FORMS(w_experts, w_experts, w_forms);

static const apr_tensor_rule shared_expert[] = {
    {L "mlp.shared_expert_gate.weight", B "ffn_gate_inp_shexp.weight", APR_TENSOR_ROLE_ROUTER},
    {L "mlp.shared_expert.gate_proj.weight", B "ffn_gate_shexp.weight", APR_TENSOR_ROLE_FFN_GATE},
    {L "mlp.shared_expert.up_proj.weight", B "ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP},
    {L "mlp.shared_expert.down_proj.weight", B "ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN},
};
SET(shared_expert, shared_expert);

static const apr_tensor_rule shared_experts[] = {
    {L "mlp.gate.e_score_correction_bias", B "exp_probs_b.bias", APR_TENSOR_ROLE_SMALL},
    {L "mlp.shared_experts.gate_proj.weight", B "ffn_gate_shexp.weight", APR_TENSOR_ROLE_FFN_GATE},
    {L "mlp.shared_experts.up_proj.weight", B "ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP},
    {L "mlp.shared_experts.down_proj.weight", B "ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN},
};
static const apr_tensor_form shared_forms[] = {
    {APR_NAMING_GGML, APR_FORM_READ, B "exp_probs_b", NULL, {{L "mlp.gate.e_score_correction_bias", {{0}}}}},
};
SET_WITH_FORMS(shared_experts, shared_experts, shared_forms);

/* ---- latent attention: in kv_b_proj each head has its key rows, then its value rows; ggml stores the keys transposed ---- */

#define ATTN L "self_attn."
static const apr_tensor_rule latent[] = {
    {ATTN "q_proj.weight", B "attn_q.weight", APR_TENSOR_ROLE_ATTN_Q}, /* in models without a latent for queries */
    {ATTN "q_a_proj.weight", B "attn_q_a.weight", APR_TENSOR_ROLE_MATRIX},
    {ATTN "q_a_layernorm.weight", B "attn_q_a_norm.weight", APR_TENSOR_ROLE_SMALL},
    {ATTN "q_b_proj.weight", B "attn_q_b.weight", APR_TENSOR_ROLE_MATRIX},
    {ATTN "kv_a_proj_with_mqa.weight", B "attn_kv_a_mqa.weight", APR_TENSOR_ROLE_MATRIX},
    {ATTN "kv_a_layernorm.weight", B "attn_kv_a_norm.weight", APR_TENSOR_ROLE_SMALL},
    {ATTN "kv_b_proj.weight", NULL, APR_TENSOR_ROLE_MATRIX},
    {ATTN "k_b_proj.weight", B "attn_k_b.weight", APR_TENSOR_ROLE_MATRIX},
    {ATTN "v_b_proj.weight", B "attn_v_b.weight", APR_TENSOR_ROLE_MATRIX},
    {ATTN "o_proj.weight", B "attn_output.weight", APR_TENSOR_ROLE_ATTN_OUT},
};
static const apr_tensor_form latent_forms[] = {
    {APR_NAMING_HF,
     APR_FORM_WHOLE,
     ATTN "kv_b_proj.weight",
     NULL,
     {{ATTN "k_b_proj.weight",
       {{APR_STEP_TAKE, {1, APR_OF_HEADS, 0, APR_OF_NOPE_WIDTH}}, {APR_STEP_UNFOLD, {1, APR_OF_HEADS}}, {APR_STEP_TRANSPOSE, {0}}}},
      {ATTN "v_b_proj.weight",
       {{APR_STEP_TAKE, {1, APR_OF_HEADS, APR_OF_NOPE_WIDTH, APR_OF_V_WIDTH}}, {APR_STEP_UNFOLD, {1, APR_OF_HEADS}}}}}},
    {APR_NAMING_GGML, APR_FORM_READ, B "attn_kv_b.weight", NULL, {{ATTN "kv_b_proj.weight", {{0}}}}},
};
SET_WITH_FORMS(latent, latent, latent_forms);
