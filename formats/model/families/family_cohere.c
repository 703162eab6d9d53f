/* family_cohere.c - cohere2: attention and feed-forward side by side on one layer norm; full layers have no positions. */
#include "formats/model/family.h"

const apr_family apr_family_cohere2 = {
    .name = "cohere2",
    .types = {{"cohere2", "Cohere2ForCausalLM"}},
    .ggml = "cohere2",
    .gguf = {.more_keys = " logit_scale attention.sliding_window vocab_size rope.dimension_count rope.scaling.type ",
             .full_every = 4,
             .nope = APR_NOPE_FULL,
             .eps = APR_EPS_LAYER,
             .has_window = true}};
