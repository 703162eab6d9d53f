/* family_gemma4.c - gemma4: sliding and full layers of different widths, shared keys and values, per-layer inputs, experts in parallel
 * with the feed-forward. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

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

static const apr_family_config gemma4 = {
    .activation = "gelu_pytorch_tanh",
    .activation_key = "hidden_activation",
    .window = APR_WINDOW_PATTERN,
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{"num_experts_per_tok", "top_k_experts"}},
    .local_rope = true,
    .computes = " hidden_act final_logit_softcapping rope_local_base_freq num_kv_shared_layers per_layer_config hidden_size_per_layer_input"
                " enable_moe_block attention_k_eq_v use_double_wide_mlp ",
    .accepts = {{"use_bidirectional_attention", " vision "}}, /* applies between the tokens of an image */
    .flags_on = " tie_word_embeddings ",
    .flags_always = " norm_topk_prob ",
    .flags_shown = " enable_moe_block ",
    .num_kv_heads = 4,
    .head_dim = 256,
    .max_position_embeddings = 131072,
    .sliding_window = 512,
    .full_every = 6,
    .rms_norm_eps = 1e-6,
    .rope_theta = 1e6,
    .defaults = {{"num_heads", 8},
                 {"intermediate_size", 9216},
                 {"vocab_size", 262144},
                 {"per_layer_input_size", 256},
                 {"global_head_dim", 512},
                 {"rope_theta_local", 1e4}},
    .rope = &rope};

static const apr_hparams assumes = {.rope_theta_local = 10000, .norm_topk_prob = true};

const apr_family apr_family_gemma4 = {
    .name = "gemma4",
    .types = {{"gemma4_text", "Gemma4ForCausalLM"}, {"gemma4", "Gemma4ForConditionalGeneration"}},
    .ggml = "gemma4",
    .gguf = {.more_keys = " final_logit_softcapping attention.sliding_window attention.shared_kv_layers!"
                          " embedding_length_per_layer_input! attention.sliding_window_pattern"
                          " attention.key_length_swa attention.value_length_swa"
                          " expert_feed_forward_length rope.dimension_count rope.dimension_count_swa ",
             .assumes = &assumes,
             .reads_rope_freqs = true,
             .has_window = true},
    .config = &gemma4,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .forms = forms,
    .n_forms = sizeof forms / sizeof *forms,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_sandwich_norms, &apr_tensors_dense},
    .translates = true};
