/* family_glm.c - glm4 (norms on both sides of each block), glm4_moe, glm4_moe_lite (latent attention). */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

/* gate and up are one matrix in both dialects */
static const apr_tensor_rule glm4_tensors[] = {
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.post_self_attn_layernorm.weight", "blk.{}.post_attention_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight", APR_FOR_SMALL},
};

const apr_family apr_family_glm4 = {.name = "glm4",
                                    .types = {{"glm4", "Glm4ForCausalLM"}},
                                    .ggml = "glm4",
                                    .tensors = glm4_tensors,
                                    .n_tensors = sizeof glm4_tensors / sizeof *glm4_tensors,
                                    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_dense},
                                    .translates = true};

const apr_family apr_family_glm4_moe = {.name = "glm4_moe",
                                        .types = {{"glm4_moe", "Glm4MoeForCausalLM"}},
                                        .ggml = "glm4moe",
                                        .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm,
                                                 &apr_tensors_ffn_post_norm, &apr_tensors_dense, &apr_tensors_experts,
                                                 &apr_tensors_shared_experts},
                                        .translates = true};

const apr_family apr_family_glm4_moe_lite = {.name = "glm4_moe_lite",
                                             .types = {{"glm4_moe_lite", "Glm4MoeLiteForCausalLM"}},
                                             .ggml = "deepseek2",
                                             .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                      &apr_tensors_experts, &apr_tensors_shared_experts},
                                             .translates = true};
