/* family_smollm.c - smollm3: every fourth layer has no positions. */
#include "formats/model/family.h"

const apr_family apr_family_smollm3 = {
    .name = "smollm3",
    .types = {{"smollm3", "SmolLM3ForCausalLM"}},
    .ggml = "smollm3",
    .gguf = {.more_keys = " vocab_size rope.dimension_count ", .nope = APR_NOPE_FOURTH, .omits_head_dim = true, .rotates_pairs = true}};
