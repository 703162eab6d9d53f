/* family_llama.c - llama and mistral. ggml stores rows of q and k as rotary pairs, Hugging Face as halves. The two differ by mistral's
 * window. A mistral is written as ggml's "llama", the name that llama.cpp knows. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define COMMON                                                 \
    .ggml = "llama",                                           \
    .gguf = {.more_keys = " vocab_size rope.dimension_count ", \
             .omits_head_dim = true,                           \
             .reads_rope_freqs = true,                         \
             .rotates_pairs = true,                            \
             .rotates_whole_heads = true},                     \
    .translates = true, .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense}

static const apr_family_config llama = {.activation = "silu",
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .mlp_bias = APR_BIAS_WHEN_STATED,
                                        .computes = " mlp_bias rmsnorm ",
                                        .refuses = " partial_rotary_factor sliding_window layer_types num_local_experts num_experts ",
                                        .max_position_embeddings = 2048,
                                        .rms_norm_eps = 1e-6};

const apr_family apr_family_llama = {.name = "llama", .types = {{"llama", "LlamaForCausalLM"}}, .config = &llama, COMMON};

/* The mistral class of transformers has no biases, and either one window for all layers or none. */
static const apr_family_config mistral = {.activation = "silu",
                                          .window = APR_WINDOW_ALL,
                                          .computes = " rmsnorm ",
                                          .refuses = " attention_bias partial_rotary_factor layer_types num_local_experts num_experts ",
                                          .num_kv_heads = 8,
                                          .max_position_embeddings = 131072,
                                          .sliding_window = 4096,
                                          .rms_norm_eps = 1e-6};

const apr_family apr_family_mistral = {.name = "mistral", .types = {{"mistral", "MistralForCausalLM"}}, .config = &mistral, COMMON};
