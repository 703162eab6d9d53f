/* family_mixtral.c - mixtral: mistral's attention, and experts in single tensors (w1, w2, w3), which no recipe quantizes specially yet. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config config = {
    .activation = "silu",
    .window = APR_WINDOW_ALL,
    .spellings = {{"num_experts", "num_local_experts"}},
    .ff_is_expert = true,
    .flags_always = APR_FLAG(norm_topk_prob),
    .refuses = APR_NAMES("attention_bias", "layer_types"),
    .num_kv_heads = 8,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-5,
    .rope_theta = 1e6,
    .defaults = {.num_heads = 32, .intermediate_size = 14336, .vocab_size = 32000, .num_experts = 8, .num_experts_per_tok = 2}};

static const apr_hparams assumes = {.norm_topk_prob = true};

/* ggml's "llama" with experts. */
const apr_family apr_family_mixtral = {.name = "mixtral",
                                       .types = {{"mixtral", "MixtralForCausalLM"}},
                                       .ggml = "llama",
                                       .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim)},
                                                .chosen_by = {APR_KEY(num_experts), 1, INT64_MAX},
                                                .assumes = &assumes,
                                                .omits_head_dim = true,
                                                .reads_rope_freqs = true,
                                                .rotates_pairs = true,
                                                .rotates_whole_heads = true},
                                       .config = &config,
                                       .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_w_experts},
                                       .translates = true};
