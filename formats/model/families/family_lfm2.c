/* family_lfm2.c - lfm2 and lfm2_moe: gated short convolutions between attention. */
#include "formats/model/family.h"

#define SPELLINGS .spellings = {{"linear_conv_kernel_dim", "shortconv.l_cache"}}

const apr_family apr_family_lfm2 = {.name = "lfm2",
                                    .types = {{"lfm2", "Lfm2ForCausalLM"}},
                                    .ggml = "lfm2",
                                    .gguf = {.more_keys = " vocab_size shortconv.l_cache ", SPELLINGS, .omits_head_dim = true}};

static const apr_hparams with_experts = {.norm_topk_prob = true, .routed_scaling_factor = 1};

const apr_family apr_family_lfm2_moe = {
    .name = "lfm2_moe",
    .types = {{"lfm2_moe", "Lfm2MoeForCausalLM"}},
    .ggml = "lfm2moe",
    .gguf = {.more_keys = " expert_feed_forward_length leading_dense_block_count! vocab_size shortconv.l_cache ",
             SPELLINGS,
             .supposes = &with_experts,
             .score_function = 2,
             .omits_head_dim = true}};
