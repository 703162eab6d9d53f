/* family_lfm2.c - lfm2 and lfm2_moe: gated short convolutions between attention. */
#include "formats/model/family.h"

#define CONFIG                                                                                             \
    .activation = "silu", .activation_key = "", .layer_types = " full_attention conv ", .num_kv_heads = 8, \
    .max_position_embeddings = 128000, .rms_norm_eps = 1e-5, .rope_theta = 1e6
#define SPELLINGS                                                                                                             \
    {"rms_norm_eps", "norm_eps"}, {"linear_conv_kernel_dim", "conv_L_cache"}, {"tie_word_embeddings", "tie_word_embeddings"}, \
    {                                                                                                                         \
        "tie_word_embeddings", "tie_embedding"                                                                                \
    }

static const apr_family_config lfm2 = {
    CONFIG, .spellings = {SPELLINGS}, .computes = " block_auto_adjust_ff_dim ", .flags_on = " tie_word_embeddings ",
    .defaults = {{"num_heads", 32}, {"intermediate_size", 12288}, {"vocab_size", 65536}, {"linear_conv_kernel_dim", 3}}};

const apr_family apr_family_lfm2 = {.name = "lfm2", .types = {{"lfm2", "Lfm2ForCausalLM"}}, .ggml = "lfm2", .config = &lfm2};

static const apr_family_config lfm2_moe = {CONFIG,
                                           .experts = APR_EXPERTS_BEHIND_DENSE,
                                           .spellings = {SPELLINGS},
                                           .computes = " routed_scaling_factor ",
                                           .requires = " use_expert_bias ",
                                           .flags_on = " tie_word_embeddings norm_topk_prob ",
                                           .defaults = {{"num_heads", 32},
                                                        {"intermediate_size", 7168},
                                                        {"vocab_size", 65536},
                                                        {"linear_conv_kernel_dim", 3},
                                                        {"num_experts", 32},
                                                        {"num_experts_per_tok", 4},
                                                        {"moe_intermediate_size", 1792},
                                                        {"routed_scaling_factor", 1.0}},
                                           .dense_key = "num_dense_layers",
                                           .n_dense = 2};

const apr_family apr_family_lfm2_moe = {
    .name = "lfm2_moe", .types = {{"lfm2_moe", "Lfm2MoeForCausalLM"}}, .ggml = "lfm2moe", .config = &lfm2_moe};
