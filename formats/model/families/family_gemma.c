/* family_gemma.c - gemma, gemma2 and gemma3 (its text part): gelu, soft caps, a scale of their own. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

#define COMPUTES " hidden_act hidden_activation final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar "

static const apr_family_config gemma = {.activation = "gelu_pytorch_tanh", .computes = COMPUTES};
const apr_family apr_family_gemma = {.name = "gemma",
                                     .types = {{"gemma", "GemmaForCausalLM"}},
                                     .ggml = "gemma",
                                     .norms_add_one = true,
                                     .config = &gemma,
                                     .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
                                     .translates = true};

static const apr_family_config gemma2 = {.activation = "gelu_pytorch_tanh", .window = APR_WINDOW_EVEN, .computes = COMPUTES};
const apr_family apr_family_gemma2 = {.name = "gemma2",
                                      .types = {{"gemma2", "Gemma2ForCausalLM"}},
                                      .ggml = "gemma2",
                                      .gguf = {.full_every = 2},
                                      .norms_add_one = true,
                                      .config = &gemma2,
                                      .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_sandwich_norms, &apr_tensors_dense},
                                      .translates = true};

static const apr_family_config gemma3 = {.activation = "gelu_pytorch_tanh", .computes = COMPUTES "rope_local_base_freq "};
const apr_family apr_family_gemma3 = {
    .name = "gemma3",
    .types = {{"gemma3_text", "Gemma3ForCausalLM"}},
    .ggml = "gemma3",
    .gguf = {.full_every = 6},
    .norms_add_one = true,
    .config = &gemma3,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_sandwich_norms, &apr_tensors_dense},
    .translates = true};
