/* family_hunyuan.c - hunyuan_v1_moe: norms of q and k behind the rotation, shared experts without a gate. */
#include "formats/model/family.h"

const apr_family apr_family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe", .types = {{"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"}}, .ggml = "hunyuan-moe"};
