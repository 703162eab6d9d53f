/* family_seed.c - seed_oss: biases on q, k and v. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

const apr_family apr_family_seed_oss = {.name = "seed_oss",
                                        .types = {{"seed_oss", "SeedOssForCausalLM"}},
                                        .ggml = "seed_oss",
                                        .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_post_norm, &apr_tensors_dense},
                                        .translates = true};
