/* family_toy2.c - a family with a forward pass of its own. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config config = {.activation = "silu", .rms_norm_eps = 1e-6, .computes = APR_NAMES("qk_norm")};

const apr_family apr_family_toy2 = {
    .name = "toy2",
    .types = {{"toy2", "Toy2ForCausalLM"}},
    .ggml = "toy2-arch",
    .config = &config,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};
