/* family_ernie.c - ernie4_5_moe: experts chosen with a bias, shared ones beside them. */
#include "formats/model/family.h"

/* llama.cpp's least sum is 6.1e-5 */
static const apr_hparams supposes = {.norm_topk_prob = true, .moe_norm_min = 1e-12};

const apr_family apr_family_ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .types = {{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"}},
    .ggml = "ernie4_5-moe",
    .gguf = {.more_keys = " interleave_moe_layer_step leading_dense_block_count! expert_feed_forward_length expert_shared_count"
                          " expert_shared_feed_forward_length ",
             .supposes = &supposes,
             .shares_by_count = true,
             .omits_head_dim = true}};
