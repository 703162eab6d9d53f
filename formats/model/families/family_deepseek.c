/* family_deepseek.c - deepseek_v3: of its configuration and tensors only what all families share is known. */
#include "formats/model/family.h"

#define KEYS                                                                                                               \
    " leading_dense_block_count! vocab_size attention.q_lora_rank attention.kv_lora_rank attention.key_length_mla"         \
    " attention.value_length_mla expert_feed_forward_length expert_shared_count! expert_weights_scale expert_weights_norm" \
    " rope.dimension_count rope.scaling.yarn_log_multiplier "

const apr_family apr_family_deepseek_v3 = {.name = "deepseek_v3",
                                           .types = {{"deepseek_v3", NULL}},
                                           .ggml = "deepseek2",
                                           .gguf = {.more_keys = KEYS, .score_function = 2, .yarn_log_unit = 0.1}};

/* In old files nothing says how experts are scored, and llama.cpp takes softmax. */
const apr_family apr_family_deepseek_v2 = {.name = "deepseek_v2",
                                           .types = {{"deepseek_v2", "DeepseekV2ForCausalLM"}},
                                           .ggml = "deepseek2",
                                           .gguf = {.more_keys = KEYS,
                                                    .chosen_by = {"expert_gating_func", 0, 1},
                                                    .score_function = 1,
                                                    .yarn_log_unit = 0.1,
                                                    .ranks_groups_by_two = true}};
