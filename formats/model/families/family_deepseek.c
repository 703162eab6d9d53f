/* family_deepseek.c - deepseek_v3: of its configuration and tensors only what all families share is known. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

const apr_family apr_family_deepseek_v3 = {.name = "deepseek_v3",
                                           .types = {{"deepseek_v3", NULL}},
                                           .ggml = "deepseek2",
                                           .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                    &apr_tensors_experts, &apr_tensors_shared_experts},
                                           .translates = true};

const apr_family apr_family_deepseek_v2 = {.name = "deepseek_v2",
                                           .types = {{"deepseek_v2", "DeepseekV2ForCausalLM"}},
                                           .ggml = "deepseek2",
                                           .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                    &apr_tensors_experts, &apr_tensors_shared_experts},
                                           .translates = true};
