/* family_llama.c - llama, mistral and those that differ from them by little: internlm3 and iquestcoder in their defaults, ministral in the
 * layers that have windows, arcee in a feed-forward without a gate, mixtral in its experts. ggml stores rows of q and k as rotary pairs,
 * Hugging Face as halves. llama and mistral differ by mistral's window. A mistral is written as ggml's "llama", the name that llama.cpp
 * knows. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define SETS .translates = true, .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense}

#define KEYS                                                          \
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim)}, \
             .omits_head_dim = true,                                  \
             .reads_rope_freqs = true,                                \
             .rotates_pairs = true,                                   \
             .rotates_whole_heads = true}

#define COMMON .ggml = "llama", KEYS, SETS

static const apr_family_config llama = {
    .activation = "silu",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .mlp_bias = APR_BIAS_WHEN_STATED,
    .computes = APR_NAMES("mlp_bias", "rmsnorm"),
    .refuses = APR_NAMES("partial_rotary_factor", "sliding_window", "layer_types", "num_local_experts", "num_experts"),
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-6,
    .defaults = {.hidden_size = 4096, .num_layers = 32, .num_heads = 32, .intermediate_size = 11008, .vocab_size = 32000}};

const apr_family apr_family_llama = {.name = "llama", .types = {{"llama", "LlamaForCausalLM"}}, .config = &llama, COMMON};

/* The mistral class of transformers has no biases, and either one window for all layers or none. */
static const apr_family_config mistral = {
    .activation = "silu",
    .window = APR_WINDOW_ALL,
    .computes = APR_NAMES("rmsnorm"),
    .refuses = APR_NAMES("attention_bias", "partial_rotary_factor", "layer_types", "num_local_experts", "num_experts"),
    .num_kv_heads = 8,
    .max_position_embeddings = 131072,
    .sliding_window = 4096,
    .rms_norm_eps = 1e-6,
    .defaults = {.hidden_size = 4096, .num_layers = 32, .num_heads = 32, .intermediate_size = 14336, .vocab_size = 32000}};

const apr_family apr_family_mistral = {.name = "mistral", .types = {{"mistral", "MistralForCausalLM"}}, .config = &mistral, COMMON};

#define LLAMA_KEYS "partial_rotary_factor", "sliding_window", "layer_types", "num_local_experts", "num_experts", "use_sliding_window"

/* Its own code calls the biases qkv_bias and bias. */
static const apr_family_config internlm3 = {.activation = "silu",
                                            .attention_bias = APR_BIAS_WHEN_STATED,
                                            .mlp_bias = APR_BIAS_WHEN_STATED,
                                            .spellings = {{APR_FIELD(attention_bias), "attention_bias"},
                                                          {APR_FIELD(attention_bias), "qkv_bias"},
                                                          {APR_FIELD(mlp_bias), "mlp_bias"},
                                                          {APR_FIELD(mlp_bias), "bias"}},
                                            .computes = APR_NAMES("mlp_bias"),
                                            .refuses = APR_NAMES(LLAMA_KEYS),
                                            .num_kv_heads = 2,
                                            .head_dim = 128,
                                            .max_position_embeddings = 32768,
                                            .rms_norm_eps = 1e-5};

const apr_family apr_family_internlm3 = {
    .name = "internlm3", .types = {{"internlm3", "InternLM3ForCausalLM"}}, .config = &internlm3, COMMON};

static const apr_family_config iquestcoder = {.activation = "silu",
                                              .attention_bias = APR_BIAS_WHEN_STATED,
                                              .mlp_bias = APR_BIAS_WHEN_STATED,
                                              .computes = APR_NAMES("mlp_bias"),
                                              .refuses = APR_NAMES(LLAMA_KEYS),
                                              .num_kv_heads = 8,
                                              .head_dim = 128,
                                              .max_position_embeddings = 131072,
                                              .rms_norm_eps = 1e-5};

const apr_family apr_family_iquestcoder = {
    .name = "iquestcoder", .types = {{"iquestcoder", "IQuestCoderForCausalLM"}}, .config = &iquestcoder, COMMON};

static const apr_family_config ministral = {.activation = "silu",
                                            .window = APR_WINDOW_ALL,
                                            .refuses =
                                                APR_NAMES("attention_bias", "partial_rotary_factor", "num_local_experts", "num_experts"),
                                            .num_kv_heads = 8,
                                            .max_position_embeddings = 131072,
                                            .sliding_window = 4096,
                                            .rms_norm_eps = 1e-6};

const apr_family apr_family_ministral = {
    .name = "ministral", .types = {{"ministral", "MinistralForCausalLM"}}, .config = &ministral, COMMON};

static const apr_family_config arcee = {.activation = "relu2",
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .mlp_bias = APR_BIAS_WHEN_STATED,
                                        .computes = APR_NAMES("mlp_bias"),
                                        .refuses = APR_NAMES(LLAMA_KEYS),
                                        .max_position_embeddings = 4096,
                                        .rms_norm_eps = 1e-5,
                                        .defaults = {.num_heads = 32, .intermediate_size = 18432, .vocab_size = 32000}};

const apr_family apr_family_arcee = {
    .name = "arcee", .types = {{"arcee", "ArceeForCausalLM"}}, .ggml = "arcee", .config = &arcee, KEYS, SETS};

static const apr_family_config mixtral = {
    .activation = "silu",
    .window = APR_WINDOW_ALL,
    .spellings = {{APR_FIELD(num_experts), "num_local_experts"}},
    .ff_is_expert = true,
    .flags_always = APR_FLAG(norm_topk_prob),
    .refuses = APR_NAMES("attention_bias", "layer_types"),
    .num_kv_heads = 8,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-5,
    .rope_theta = 1e6,
    .defaults = {.num_heads = 32, .intermediate_size = 14336, .vocab_size = 32000, .num_experts = 8, .num_experts_per_tok = 2}};

static const apr_hparams mixtral_assumes = {.norm_topk_prob = true};

/* ggml's "llama" with experts: single tensors (w1, w2, w3), which no recipe quantizes specially yet. */
const apr_family apr_family_mixtral = {.name = "mixtral",
                                       .types = {{"mixtral", "MixtralForCausalLM"}},
                                       .ggml = "llama",
                                       .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim)},
                                                .chosen_by = {APR_KEY(num_experts), 1, INT64_MAX},
                                                .assumes = &mixtral_assumes,
                                                .omits_head_dim = true,
                                                .reads_rope_freqs = true,
                                                .rotates_pairs = true,
                                                .rotates_whole_heads = true},
                                       .config = &mixtral,
                                       .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_w_experts},
                                       .translates = true};
