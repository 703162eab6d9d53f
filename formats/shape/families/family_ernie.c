/* family_ernie.c - ernie4_5; ernie4_5_moe: experts chosen with a bias, and shared experts. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.mlp.moe_statics.e_score_correction_bias", "blk.{}.exp_probs_b.bias", APR_TENSOR_ROLE_SMALL},
};

static const apr_family_config ernie4_5_moe = {.activation = "silu",
                                               .experts = APR_EXPERTS_IN_RANGE,
                                               .spellings = {{APR_FIELD(num_experts), "moe_num_experts"},
                                                             {APR_FIELD(num_experts_per_tok), "moe_k"},
                                                             {APR_FIELD(num_shared_experts), "moe_num_shared_experts"},
                                                             {APR_FIELD(attention_bias), "use_bias"}},
                                               .refuses = APR_NAMES("use_bias"),
                                               .flags_on = APR_FLAG(tie_word_embeddings),
                                               .flags_always = APR_FLAG(norm_topk_prob),
                                               .num_kv_heads = 4,
                                               .max_position_embeddings = 131072,
                                               .rms_norm_eps = 1e-5,
                                               .rope_theta = 500000,
                                               .defaults = {.num_heads = 20,
                                                            .intermediate_size = 12288,
                                                            .vocab_size = 103424,
                                                            .num_experts = 64,
                                                            .num_experts_per_tok = 6,
                                                            .moe_intermediate_size = 1536,
                                                            .num_shared_experts = 2,
                                                            .moe_norm_min = 1e-12}};

/* llama.cpp uses 6.1e-5 as the least sum. */
static const apr_hparams assumes = {.norm_topk_prob = true, .moe_norm_min = 1e-12};

const apr_family apr_family_ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .types = {{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"}},
    .ggml = "ernie4_5-moe",
    .gguf = {.more_keys = {APR_KEY(interleave_moe_layer_step), APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY(moe_intermediate_size),
                           APR_KEY(num_shared_experts), APR_KEY(shared_expert_intermediate_size)},
             .assumes = &assumes,
             .shares_by_count = true,
             .omits_head_dim = true},
    .config = &ernie4_5_moe,
    APR_OWN_TENSORS(tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense, &apr_tensors_experts,
             &apr_tensors_shared_experts},
    .translates = true};

static const apr_family_config ernie4_5 = {.activation = "silu",
                                           .attention_bias = APR_BIAS_WHEN_STATED,
                                           .mlp_bias = APR_BIAS_WHEN_STATED,
                                           .spellings = {{APR_FIELD(attention_bias), "use_bias"}, {APR_FIELD(mlp_bias), "use_bias"}},
                                           .flags_on = APR_FLAG(tie_word_embeddings),
                                           .num_kv_heads = 2,
                                           .head_dim = 128,
                                           .max_position_embeddings = 131072,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 500000,
                                           .defaults = {.num_heads = 16, .intermediate_size = 3072, .vocab_size = 103424}};

const apr_family apr_family_ernie4_5 = {.name = "ernie4_5",
                                        .types = {{"ernie4_5", "Ernie4_5ForCausalLM"}},
                                        .ggml = "ernie4_5",
                                        .gguf = {.more_keys = {APR_NO_KEYS}},
                                        .config = &ernie4_5,
                                        .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
                                        .translates = true};
