/* family_gemma.c - gemma, gemma2 and gemma3 (the text part): gelu, soft caps, a stated scale of attention scores. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define COMPUTES "hidden_act", "final_logit_softcapping", "attn_logit_softcapping", "query_pre_attn_scalar"

#define KEYS                                                                                                                     \
    APR_KEY(max_position_embeddings), APR_KEY(hidden_size), APR_KEY(num_layers), APR_KEY(intermediate_size), APR_KEY(num_heads), \
        APR_KEY(num_kv_heads), APR_KEY(rms_norm_eps), APR_KEY(head_dim), APR_KEY(value_length)

/* Old files say "gelu" and mean its approximation. */
static const apr_family_config gemma = {.activation = "gelu_pytorch_tanh",
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .accepts = {{"hidden_act", APR_NAMES("gelu", "gelu_pytorch_tanh", "gelu_new")}},
                                        .flags_on = APR_FLAG(tie_word_embeddings),
                                        .num_kv_heads = 16,
                                        .head_dim = 256,
                                        .max_position_embeddings = 8192,
                                        .rms_norm_eps = 1e-6};

const apr_family apr_family_gemma = {.name = "gemma",
                                     .types = {{"gemma", "GemmaForCausalLM"}},
                                     .ggml = "gemma",
                                     .gguf = {.keys = {KEYS}, .more_keys = {APR_NO_KEYS}},
                                     .norms_add_one = true,
                                     .config = &gemma,
                                     .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
                                     .translates = true};

/* The classes ignore the field hidden_act. */
#define GEMMA                                                                                                         \
    .activation = "gelu_pytorch_tanh", .activation_key = "hidden_activation", .attention_bias = APR_BIAS_WHEN_STATED, \
    .flags_on = APR_FLAG(tie_word_embeddings), .num_kv_heads = 4, .head_dim = 256, .sliding_window = 4096, .rms_norm_eps = 1e-6

static const apr_family_config gemma2 = {GEMMA, .window = APR_WINDOW_EVEN, .computes = APR_NAMES(COMPUTES), .max_position_embeddings = 8192,
                                         .defaults = {.num_heads = 8,
                                                      .intermediate_size = 9216,
                                                      .vocab_size = 256000,
                                                      .query_pre_attn_scalar = 256,
                                                      .attn_logit_softcapping = 50,
                                                      .final_logit_softcapping = 30}};

static const apr_hparams gemma2_supposes = {.sliding_window = 4096};

const apr_family apr_family_gemma2 = {
    .name = "gemma2",
    .types = {{"gemma2", "Gemma2ForCausalLM"}},
    .ggml = "gemma2",
    .gguf = {.keys = {KEYS},
             .more_keys = {APR_KEY(attn_logit_softcapping), APR_KEY(final_logit_softcapping), APR_KEY(sliding_window)},
             .assumes = &gemma2_supposes,
             .full_every = 2,
             .wide_layers = 46,
             .has_window = true},
    .norms_add_one = true,
    .config = &gemma2,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_sandwich_norms, &apr_tensors_dense},
    .translates = true};

static const apr_family_config gemma3 = {
    GEMMA,
    .window = APR_WINDOW_PATTERN,
    .local_rope = true,
    .computes = APR_NAMES(COMPUTES, "rope_local_base_freq"),
    .max_position_embeddings = 131072,
    .full_every = 6,
    .rope_theta = 1e6,
    .defaults = {.num_heads = 8, .intermediate_size = 9216, .vocab_size = 262208, .query_pre_attn_scalar = 256, .rope_theta_local = 1e4}};

static const apr_hparams gemma3_supposes = {.rope_theta_local = 10000};

const apr_family apr_family_gemma3 = {
    .name = "gemma3",
    .types = {{"gemma3_text", "Gemma3ForCausalLM"}, {"gemma3", "Gemma3ForConditionalGeneration"}},
    .ggml = "gemma3",
    .gguf = {.more_keys = {APR_KEY(final_logit_softcapping), APR_KEY(sliding_window)},
             .assumes = &gemma3_supposes,
             .full_every = 6,
             .wide_layers = 62,
             .has_window = true},
    .norms_add_one = true,
    .config = &gemma3,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_sandwich_norms, &apr_tensors_dense},
    .translates = true};
