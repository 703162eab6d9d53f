/* family_llama4.c - llama4: attention in chunks, experts that weigh their input, norms without weights behind the rotation. */
#include "formats/model/family.h"

static const apr_family_config llama4 = {
    .activation = "silu",
    .layer_types = " full_attention chunked_attention ",
    .window = APR_WINDOW_CHUNKS,
    .experts = APR_EXPERTS_LISTED,
    .positions = APR_POSITIONS_LISTED,
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{"intermediate_size", "intermediate_size_mlp"},
                  {"moe_intermediate_size", "intermediate_size"},
                  {"shared_expert_intermediate_size", "intermediate_size"},
                  {"num_experts", "num_local_experts"}},
    .computes = " use_qk_norm attn_temperature_tuning attention_chunk_size no_rope_layers no_rope_layer_interval moe_layers ",
    .flags_on = " use_qk_norm ",
    .num_kv_heads = 8,
    .head_dim = 128,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-5,
    .rope_theta = 500000,
    .defaults = {{"num_heads", 40},
                 {"intermediate_size", 16384},
                 {"vocab_size", 202048},
                 {"moe_intermediate_size", 8192},
                 {"shared_expert_intermediate_size", 8192},
                 {"num_experts", 16},
                 {"num_experts_per_tok", 1},
                 {"attention_chunk_size", 8192},
                 {"attn_temperature", 0.1},
                 {"attn_temperature_length", 8192}}};

const apr_family apr_family_llama4 = {.name = "llama4",
                                      .types = {{"llama4_text", "Llama4ForCausalLM"}, {"llama4", "Llama4ForConditionalGeneration"}},
                                      .ggml = "llama4",
                                      .config = &llama4,
                                      .text_prefix = "language_model.model."};
