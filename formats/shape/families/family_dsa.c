/* family_dsa.c - deepseek_v32 and glm_moe_dsa: DeepSeek V3, with latent attention to the positions that an indexer chooses. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define ATTN "model.layers.{}.self_attn.indexer."
#define B    "blk.{}.indexer."

static const apr_tensor_rule indexer[] = {
    {ATTN "wq_b.weight", B "attn_q_b.weight", APR_TENSOR_ROLE_MATRIX},     {ATTN "wk.weight", B "attn_k.weight", APR_TENSOR_ROLE_MATRIX},
    {ATTN "k_norm.weight", B "k_norm.weight", APR_TENSOR_ROLE_SMALL},      {ATTN "k_norm.bias", B "k_norm.bias", APR_TENSOR_ROLE_SMALL},
    {ATTN "weights_proj.weight", B "proj.weight", APR_TENSOR_ROLE_ROUTER},
};

#define COMPUTES APR_LATENT_FIELDS, "index_topk"
#define SPELLINGS                                                                                                               \
    {                                                                                                                           \
        {APR_FIELD(num_experts), "n_routed_experts"}, {APR_FIELD(num_experts), "num_local_experts"}, {APR_FIELD(head_dim), ""}, \
            {APR_FIELD(num_nextn_layers), "num_nextn_predict_layers"},                                                          \
        {                                                                                                                       \
            APR_FIELD(num_nextn_layers), "num_mtp_layers"                                                                       \
        }                                                                                                                       \
    }
#define LAYER_TYPES "indexed_attention", "full_attention"

static const apr_family_config deepseek_v32 = {.activation = "silu",
                                               .layer_types = APR_NAMES(LAYER_TYPES),
                                               .experts = APR_EXPERTS_AFTER_DENSE,
                                               .spellings = SPELLINGS,
                                               .computes = APR_NAMES(COMPUTES),
                                               .refuses = APR_NAMES("attention_bias"),
                                               .requires = APR_NAMES("rope_interleave"),
                                               .accepts = {{"scoring_func", APR_NAMES("sigmoid")}, {"topk_method", APR_NAMES("noaux_tc")}},
                                               .flags_on = APR_FLAG(norm_topk_prob),
                                               .num_kv_heads = 128,
                                               .max_position_embeddings = 163840,
                                               .rms_norm_eps = 1e-6,
                                               .defaults = {.num_heads = 128,
                                                            .intermediate_size = 18432,
                                                            .vocab_size = 129280,
                                                            .q_lora_rank = 1536,
                                                            .kv_lora_rank = 512,
                                                            .qk_nope_head_dim = 128,
                                                            .qk_rope_head_dim = 64,
                                                            .v_head_dim = 128,
                                                            .num_experts = 256,
                                                            .num_experts_per_tok = 8,
                                                            .moe_intermediate_size = 2048,
                                                            .num_shared_experts = 1,
                                                            .num_expert_groups = 8,
                                                            .num_expert_groups_used = 4,
                                                            .routed_scaling_factor = 2.5,
                                                            .index_topk = 2048,
                                                            .index_head_dim = 128,
                                                            .index_n_heads = 64},
                                               .dense_key = "first_k_dense_replace",
                                               .n_dense = 3};

static const apr_family_config glm_moe_dsa = {.activation = "silu",
                                              .layer_types = APR_NAMES(LAYER_TYPES),
                                              .experts = APR_EXPERTS_AFTER_DENSE,
                                              .shares_index = true,
                                              .spellings = SPELLINGS,
                                              .computes = APR_NAMES(COMPUTES, "indexer_types", "index_topk_freq", "index_topk_pattern"),
                                              .refuses = APR_NAMES("attention_bias"),
                                              .requires = APR_NAMES("rope_interleave"),
                                              .accepts = {{"scoring_func", APR_NAMES("sigmoid")}, {"topk_method", APR_NAMES("noaux_tc")}},
                                              .flags_on = APR_FLAG(norm_topk_prob),
                                              .num_kv_heads = 64,
                                              .max_position_embeddings = 202752,
                                              .rms_norm_eps = 1e-5,
                                              .defaults = {.num_heads = 64,
                                                           .intermediate_size = 12288,
                                                           .vocab_size = 154880,
                                                           .q_lora_rank = 2048,
                                                           .kv_lora_rank = 512,
                                                           .qk_nope_head_dim = 192,
                                                           .qk_rope_head_dim = 64,
                                                           .v_head_dim = 256,
                                                           .num_experts = 256,
                                                           .num_experts_per_tok = 8,
                                                           .moe_intermediate_size = 2048,
                                                           .num_shared_experts = 1,
                                                           .num_expert_groups = 1,
                                                           .num_expert_groups_used = 1,
                                                           .routed_scaling_factor = 2.5,
                                                           .index_topk = 2048,
                                                           .index_head_dim = 128,
                                                           .index_n_heads = 32},
                                              .dense_key = "first_k_dense_replace",
                                              .n_dense = 3};

#define GGUF(shares)                                                                               \
    {                                                                                              \
        .more_keys = {APR_LATENT_KEYS,         APR_KEY(num_nextn_layers), APR_KEY(index_n_heads),  \
                      APR_KEY(index_head_dim), APR_KEY(index_topk),       APR_KEY(indexer_types)}, \
        .score_function = 2, .yarn_log_unit = 0.1, .shares_index = shares                          \
    }
#define SETS                                                                                                     \
    {                                                                                                            \
        &apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense, &apr_tensors_experts, \
            &apr_tensors_shared_experts                                                                          \
    }

const apr_family apr_family_deepseek_v32 = {.name = "deepseek_v32",
                                            .types = {{"deepseek_v32", "DeepseekV32ForCausalLM"}},
                                            .ggml = "deepseek32",
                                            .gguf = GGUF(false),
                                            .config = &deepseek_v32,
                                            APR_OWN_TENSORS(indexer),
                                            .sets = SETS,
                                            .translates = true};

const apr_family apr_family_glm_moe_dsa = {.name = "glm_moe_dsa",
                                           .types = {{"glm_moe_dsa", "GlmMoeDsaForCausalLM"}},
                                           .ggml = "glm-dsa",
                                           .gguf = GGUF(true),
                                           .config = &glm_moe_dsa,
                                           APR_OWN_TENSORS(indexer),
                                           .sets = SETS,
                                           .translates = true};
