/* family_lfm2.c - lfm2 and lfm2_moe: gated short convolutions between attention. */
#include "formats/model/family.h"

const apr_family apr_family_lfm2 = {.name = "lfm2", .types = {{"lfm2", "Lfm2ForCausalLM"}}, .ggml = "lfm2"};

const apr_family apr_family_lfm2_moe = {.name = "lfm2_moe", .types = {{"lfm2_moe", "Lfm2MoeForCausalLM"}}, .ggml = "lfm2moe"};
