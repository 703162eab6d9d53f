/* family_smollm.c - smollm3: every fourth layer has no positions. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

const apr_family apr_family_smollm3 = {.name = "smollm3",
                                       .types = {{"smollm3", "SmolLM3ForCausalLM"}},
                                       .ggml = "smollm3",
                                       .gguf = {.rotates_pairs = true},
                                       .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
                                       .translates = true};
