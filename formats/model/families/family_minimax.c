/* family_minimax.c - minimax_m2: norms over the whole row of q and k; experts chosen by sigmoid and bias. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

const apr_family apr_family_minimax_m2 = {
    .name = "minimax_m2",
    .types = {{"minimax_m2", "MiniMaxM2ForCausalLM"}},
    .ggml = "minimax-m2",
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm, &apr_tensors_w_experts},
    .translates = true};
