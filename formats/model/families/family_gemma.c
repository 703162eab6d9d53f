/* family_gemma.c - gemma, gemma2 and gemma3 (its text part): gelu, soft caps, a scale of their own. */
#include "formats/model/family.h"

#define COMPUTES " hidden_act hidden_activation final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar "

#define KEYS                                                                                                        \
    " context_length embedding_length block_count feed_forward_length attention.head_count attention.head_count_kv" \
    " attention.layer_norm_rms_epsilon attention.key_length attention.value_length "

static const apr_family_config gemma = {.activation = "gelu_pytorch_tanh", .computes = COMPUTES};
const apr_family apr_family_gemma = {.name = "gemma",
                                     .types = {{"gemma", "GemmaForCausalLM"}},
                                     .ggml = "gemma",
                                     .gguf = {.keys = KEYS, .more_keys = " "},
                                     .norms_add_one = true,
                                     .config = &gemma};

static const apr_family_config gemma2 = {.activation = "gelu_pytorch_tanh", .window = APR_WINDOW_EVEN, .computes = COMPUTES};
static const apr_hparams gemma2_supposes = {.sliding_window = 4096};
const apr_family apr_family_gemma2 = {.name = "gemma2",
                                      .types = {{"gemma2", "Gemma2ForCausalLM"}},
                                      .ggml = "gemma2",
                                      .gguf = {.keys = KEYS,
                                               .more_keys = " attn_logit_softcapping final_logit_softcapping attention.sliding_window ",
                                               .supposes = &gemma2_supposes,
                                               .full_every = 2,
                                               .wide_layers = 46,
                                               .has_window = true},
                                      .norms_add_one = true,
                                      .config = &gemma2};

static const apr_family_config gemma3 = {.activation = "gelu_pytorch_tanh", .computes = COMPUTES "rope_local_base_freq "};
static const apr_hparams gemma3_supposes = {.rope_theta_local = 10000};
const apr_family apr_family_gemma3 = {.name = "gemma3",
                                      .types = {{"gemma3_text", "Gemma3ForCausalLM"}},
                                      .ggml = "gemma3",
                                      .gguf = {.more_keys = " final_logit_softcapping attention.sliding_window ",
                                               .supposes = &gemma3_supposes,
                                               .full_every = 6,
                                               .wide_layers = 62,
                                               .has_window = true},
                                      .norms_add_one = true,
                                      .config = &gemma3};
