/* family_glm.c - glm4 (norms on both sides of each block), glm4_moe, glm4_moe_lite (latent attention). */
#include "formats/model/family.h"

const apr_family apr_family_glm4 = {.name = "glm4", .types = {{"glm4", "Glm4ForCausalLM"}}, .ggml = "glm4"};

const apr_family apr_family_glm4_moe = {.name = "glm4_moe", .types = {{"glm4_moe", "Glm4MoeForCausalLM"}}, .ggml = "glm4moe"};

const apr_family apr_family_glm4_moe_lite = {
    .name = "glm4_moe_lite", .types = {{"glm4_moe_lite", "Glm4MoeLiteForCausalLM"}}, .ggml = "deepseek2"};
