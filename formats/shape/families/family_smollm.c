/* family_smollm.c - smollm3: every fourth layer has no positions. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config smollm3 = {.activation = "silu",
                                          .positions = APR_POSITIONS_LISTED,
                                          .attention_bias = APR_BIAS_WHEN_STATED,
                                          .computes = APR_NAMES("no_rope_layers", "no_rope_layer_interval"),
                                          .refuses = APR_NAMES("use_sliding_window"),
                                          .flags_on = APR_FLAG(tie_word_embeddings),
                                          .num_kv_heads = 4,
                                          .max_position_embeddings = 32768,
                                          .rms_norm_eps = 1e-6,
                                          .rope_theta = 2e6,
                                          .defaults = {.num_heads = 16, .intermediate_size = 11008, .vocab_size = 128256}};

const apr_family apr_family_smollm3 = {.name = "smollm3",
                                       .types = {{"smollm3", "SmolLM3ForCausalLM"}},
                                       .ggml = "smollm3",
                                       .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim)},
                                                .nope = APR_NOPE_FOURTH,
                                                .omits_head_dim = true,
                                                .rotates_pairs = true},
                                       .config = &smollm3,
                                       .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
                                       .translates = true};
