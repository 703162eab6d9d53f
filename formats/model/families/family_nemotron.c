/* family_nemotron.c - nemotron_h: one mixer a layer: Mamba 2, attention without positions, feed-forward or experts. */
#include "formats/model/family.h"

const apr_family apr_family_nemotron_h = {
    .name = "nemotron_h",
    .types = {{"nemotron_h", "NemotronHForCausalLM"}},
    .ggml = "nemotron_h_moe",
    .gguf = {.keys = " block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv"
                     " attention.layer_norm_rms_epsilon attention.layer_norm_epsilon expert_count expert_used_count expert_group_count"
                     " expert_group_used_count ",
             .more_keys = " vocab_size rope.dimension_count ssm.conv_kernel ssm.state_size ssm.group_count ssm.inner_size"
                          " ssm.time_step_rank rope.scaling.finetuned attention.key_length attention.value_length"
                          " expert_feed_forward_length expert_shared_feed_forward_length expert_shared_count expert_weights_norm"
                          " expert_weights_scale moe_latent_size ",
             .name_without_experts = "nemotron_h",
             .nope = APR_NOPE_ALL,
             .eps = APR_EPS_BOTH}};
