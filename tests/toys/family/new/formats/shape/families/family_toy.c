/* family_toy.c - a dense family with norms on q and k, and everything else as usual. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config config = {.activation = "silu", .rms_norm_eps = 1e-6, .computes = APR_NAMES("qk_norm")};

const apr_family apr_family_toy = {
    .name = "toy",
    .types = {{"toy", "ToyForCausalLM"}},
    .ggml = "toy-arch",
    .config = &config,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};
