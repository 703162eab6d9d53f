/* family_gemma4.c - gemma4: sliding and full layers of different widths, shared keys and values, per-layer inputs, experts beside the
 * feed-forward. */
#include "formats/model/family.h"

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
    .accepts = {{"use_bidirectional_attention", " vision "}}, /* between the tokens of an image */
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

const apr_family apr_family_gemma4 = {.name = "gemma4",
                                      .types = {{"gemma4_text", "Gemma4ForCausalLM"}, {"gemma4", "Gemma4ForConditionalGeneration"}},
                                      .ggml = "gemma4",
                                      .config = &gemma4,
                                      .text_prefix = "model.language_model."};
