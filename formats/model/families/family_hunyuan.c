/* family_hunyuan.c - hunyuan_v1_moe: norms of q and k behind the rotation, shared experts without a gate. */
#include "formats/model/family.h"

static const apr_hparams supposes = {.norm_topk_prob = true};

const apr_family apr_family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .types = {{"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"}},
    .ggml = "hunyuan-moe",
    .gguf = {.more_keys = " expert_shared_feed_forward_length expert_feed_forward_length expert_shared_count ", .supposes = &supposes}};
