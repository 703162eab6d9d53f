/* family_seed.c - seed_oss: biases on q, k and v; on o and in the feed-forward where they are stated. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config seed_oss = {.activation = "silu",
                                           .attention_bias = APR_BIAS_QKV_WHEN_STATED,
                                           .mlp_bias = APR_BIAS_WHEN_STATED,
                                           .computes = APR_NAMES("attention_out_bias", "mlp_bias"),
                                           .flags_on = APR_FLAG(attention_bias),
                                           .num_kv_heads = 8,
                                           .head_dim = 128,
                                           .max_position_embeddings = 524288,
                                           .rms_norm_eps = 1e-6,
                                           .defaults = {.num_heads = 80, .intermediate_size = 27648, .vocab_size = 155136}};

const apr_family apr_family_seed_oss = {.name = "seed_oss",
                                        .types = {{"seed_oss", "SeedOssForCausalLM"}},
                                        .ggml = "seed_oss",
                                        .gguf = {.more_keys = {APR_NO_KEYS}},
                                        .config = &seed_oss,
                                        .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_post_norm, &apr_tensors_dense},
                                        .translates = true};
