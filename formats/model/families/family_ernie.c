/* family_ernie.c - ernie4_5_moe: experts chosen with a bias, shared ones beside them. */
#include "formats/model/family.h"

const apr_family apr_family_ernie4_5_moe = {
    .name = "ernie4_5_moe", .types = {{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"}}, .ggml = "ernie4_5-moe"};
