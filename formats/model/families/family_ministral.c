/* family_ministral.c - ministral3 and mistral4: queries grow warmer with the position; mistral4 has latent attention and experts. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

const apr_family apr_family_ministral3 = {
    .name = "ministral3",
    .types = {{"ministral3", "Ministral3ForCausalLM"}, {"mistral3", "Mistral3ForConditionalGeneration"}},
    .ggml = "mistral3",
    .gguf = {.rotates_pairs = true},
    .text_prefix = "model.language_model.",
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};

const apr_family apr_family_mistral4 = {.name = "mistral4",
                                        .types = {{"mistral4", "Mistral4ForCausalLM"}},
                                        .ggml = "mistral4",
                                        .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                 &apr_tensors_fused_experts, &apr_tensors_shared_experts},
                                        .translates = true};
