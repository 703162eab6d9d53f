/* family_ministral.c - ministral3 and mistral4: queries grow warmer with the position; mistral4 has latent attention and experts. */
#include "formats/model/family.h"

const apr_family apr_family_ministral3 = {
    .name = "ministral3",
    .types = {{"ministral3", "Ministral3ForCausalLM"}, {"mistral3", "Mistral3ForConditionalGeneration"}},
    .ggml = "mistral3",
    .gguf = {.more_keys = " vocab_size rope.dimension_count rope.scaling.yarn_log_multiplier attention.temperature_scale ",
             .yarn_log_unit = 1,
             .rotates_pairs = true},
    .text_prefix = "model.language_model."};

/* The temperature's keys are those of Mistral's own format: the converter drops them from a config.json. */
const apr_family apr_family_mistral4 = {
    .name = "mistral4",
    .types = {{"mistral4", "Mistral4ForCausalLM"}},
    .ggml = "mistral4",
    .gguf = {.more_keys = " leading_dense_block_count! vocab_size attention.q_lora_rank attention.kv_lora_rank attention.key_length_mla"
                          " attention.value_length_mla expert_feed_forward_length expert_shared_count! expert_weights_scale"
                          " expert_weights_norm rope.dimension_count rope.scaling.yarn_log_multiplier attention.temperature_scale"
                          " attention.temperature_length ",
             .yarn_log_unit = 0.1}};
