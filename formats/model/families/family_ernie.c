/* family_ernie.c - ernie4_5_moe: experts chosen with a bias, shared ones beside them. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.mlp.moe_statics.e_score_correction_bias", "blk.{}.exp_probs_b.bias", APR_FOR_SMALL},
};

const apr_family apr_family_ernie4_5_moe = {.name = "ernie4_5_moe",
                                            .types = {{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"}},
                                            .ggml = "ernie4_5-moe",
                                            .tensors = tensors,
                                            .n_tensors = sizeof tensors / sizeof *tensors,
                                            .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                     &apr_tensors_experts, &apr_tensors_shared_experts},
                                            .translates = true};
