/* family_cohere.c - cohere2: attention and feed-forward side by side on one layer norm; full layers have no positions. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

const apr_family apr_family_cohere2 = {.name = "cohere2",
                                       .types = {{"cohere2", "Cohere2ForCausalLM"}},
                                       .ggml = "cohere2",
                                       .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_dense},
                                       .translates = true};
