/* fused_modules.c - the sets of modules that vLLM and SGLang fuse (packed_modules_mapping of their models, and experts). */
#include "formats/packed/fused_modules.h"

#include "formats/base/text.h"

#include <string.h>

static const apr_fused_set fused_sets[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"w13", {"w1", "w3"}},
    {"fused_qkv_a_proj", {"q_a_proj", "kv_a_proj_with_mqa"}},
    {"in_proj_qkvz", {"in_proj_qkv", "in_proj_z"}},
    {"in_proj_ba", {"in_proj_b", "in_proj_a"}},
};

const apr_fused_set *apr_packed_fused(const char *weight, size_t *n_parent)
{
    const size_t stem = apr_stem_of(weight, ".weight"), n = stem > 0 ? stem : strlen(weight);
    size_t at = n;

    while (at > 0 && weight[at - 1] != '.') at--;
    *n_parent = at;
    for (size_t i = 0; i < sizeof fused_sets / sizeof *fused_sets; i++)
        for (int k = 0; k < APR_FUSED_MEMBERS && fused_sets[i].members[k] != NULL; k++)
            if (strlen(fused_sets[i].members[k]) == n - at && memcmp(weight + at, fused_sets[i].members[k], n - at) == 0)
                return &fused_sets[i];
    return NULL;
}
