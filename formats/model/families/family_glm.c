/* family_glm.c - glm4 (norms on both sides of each block), glm4_moe, glm4_moe_lite (latent attention). */
#include "formats/model/family.h"

const apr_family apr_family_glm4 = {
    .name = "glm4", .types = {{"glm4", "Glm4ForCausalLM"}}, .ggml = "glm4", .gguf = {.more_keys = " rope.dimension_count "}};

const apr_family apr_family_glm4_moe = {
    .name = "glm4_moe",
    .types = {{"glm4_moe", "Glm4MoeForCausalLM"}},
    .ggml = "glm4moe",
    .gguf = {.more_keys = " rope.dimension_count expert_feed_forward_length expert_shared_count leading_dense_block_count!"
                          " expert_weights_scale expert_weights_norm! nextn_predict_layers! ",
             .score_function = 2,
             .qk_norm_in_tensors = true}};

/* Its vocabulary tells it from a deepseek, as llama.cpp does it. */
const apr_family apr_family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .types = {{"glm4_moe_lite", "Glm4MoeLiteForCausalLM"}},
    .ggml = "deepseek2",
    .gguf = {.more_keys = " leading_dense_block_count! vocab_size attention.q_lora_rank attention.kv_lora_rank attention.key_length_mla"
                          " attention.value_length_mla expert_feed_forward_length expert_shared_count! expert_weights_scale"
                          " expert_weights_norm rope.dimension_count rope.scaling.yarn_log_multiplier nextn_predict_layers ",
             .chosen_by = {"vocab_size", 154880, 154880},
             .score_function = 2,
             .yarn_log_unit = 0.1}};
