/* family_granite.c - granite and granitemoehybrid: multipliers on embeddings, residuals, scores and logits; Mamba 2 between attention. */
#include "formats/model/family.h"

#define MULTIPLIERS " attention_multiplier residual_multiplier embedding_multiplier logits_scaling "
#define MULTIPLIERS_ABSENT \
    {"embedding_multiplier", 1}, {"logits_scaling", 1}, {"residual_multiplier", 1}, { "attention_multiplier", 1 }

static const apr_family_config granite = {
    .activation = "silu",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .computes = MULTIPLIERS,
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-6,
    .defaults = {{"num_heads", 32}, {"intermediate_size", 11008}, {"vocab_size", 32000}, MULTIPLIERS_ABSENT}};

const apr_family apr_family_granite = {.name = "granite",
                                       .types = {{"granite", "GraniteForCausalLM"}},
                                       .ggml = "granite",
                                       .config = &granite,
                                       .gguf = {.writes_rotary_dim = true, .writes_vocab_size = true, .rotates_pairs = true}};

/* without experts the shared feed-forward is the only one */
static const apr_family_config granitemoehybrid = {.activation = "silu",
                                                   .layer_types = " linear_attention full_attention mamba attention ",
                                                   .mamba = true,
                                                   .positions = APR_POSITIONS_WHEN_STATED,
                                                   .attention_bias = APR_BIAS_WHEN_STATED,
                                                   .spellings = {{"num_experts", "num_local_experts"},
                                                                 {"shared_expert_intermediate_size", "shared_intermediate_size"},
                                                                 {"linear_num_value_heads", "mamba_n_heads"},
                                                                 {"linear_num_key_heads", "mamba_n_groups"},
                                                                 {"linear_key_head_dim", "mamba_d_state"},
                                                                 {"linear_value_head_dim", "mamba_d_head"},
                                                                 {"linear_conv_kernel_dim", "mamba_d_conv"}},
                                                   .ff_is_expert = true,
                                                   .computes = MULTIPLIERS,
                                                   .accepts = {{"position_embedding_type", " rope nope "}},
                                                   .max_position_embeddings = 2048,
                                                   .rms_norm_eps = 1e-6,
                                                   .defaults = {{"num_heads", 32},
                                                                {"intermediate_size", 11008},
                                                                {"vocab_size", 32000},
                                                                MULTIPLIERS_ABSENT,
                                                                {"num_experts", 8},
                                                                {"num_experts_per_tok", 2},
                                                                {"shared_expert_intermediate_size", 1024},
                                                                {"linear_num_value_heads", 128},
                                                                {"linear_num_key_heads", 1},
                                                                {"linear_key_head_dim", 256},
                                                                {"linear_conv_kernel_dim", 4}}};

const apr_family apr_family_granitemoehybrid = {.name = "granitemoehybrid",
                                                .types = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}},
                                                .ggml = "granitehybrid",
                                                .config = &granitemoehybrid,
                                                .gguf = {.rotates_pairs = true}};
