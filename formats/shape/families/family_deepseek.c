/* family_deepseek.c - deepseek_v2 and deepseek_v3 (also kimi_k2): latent attention, experts chosen in groups. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#include <string.h>

static const apr_family_config deepseek_v3 = {.activation = "silu",
                                              .experts = APR_EXPERTS_AFTER_DENSE,
                                              .spellings = {{APR_FIELD(num_experts), "n_routed_experts"},
                                                            {APR_FIELD(num_experts), "num_local_experts"},
                                                            {APR_FIELD(head_dim), ""},
                                                            {APR_FIELD(num_nextn_layers), "num_nextn_predict_layers"},
                                                            {APR_FIELD(num_nextn_layers), "num_mtp_layers"}},
                                              .computes = APR_NAMES(APR_LATENT_FIELDS),
                                              .refuses = APR_NAMES("attention_bias"),
                                              .requires = APR_NAMES("rope_interleave"),
                                              .accepts = {{"scoring_func", APR_NAMES("sigmoid")}, {"topk_method", APR_NAMES("noaux_tc")}},
                                              .flags_on = APR_FLAG(norm_topk_prob),
                                              .num_kv_heads = 128,
                                              .max_position_embeddings = 4096,
                                              .rms_norm_eps = 1e-6,
                                              .defaults = {.num_heads = 128,
                                                           .intermediate_size = 18432,
                                                           .vocab_size = 129280,
                                                           .q_lora_rank = 1536,
                                                           .kv_lora_rank = 512,
                                                           .qk_nope_head_dim = 128,
                                                           .qk_rope_head_dim = 64,
                                                           .v_head_dim = 128,
                                                           .num_experts = 256,
                                                           .num_experts_per_tok = 8,
                                                           .moe_intermediate_size = 2048,
                                                           .num_shared_experts = 1,
                                                           .num_expert_groups = 8,
                                                           .num_expert_groups_used = 4,
                                                           .routed_scaling_factor = 2.5},
                                              .dense_key = "first_k_dense_replace",
                                              .n_dense = 3};

const apr_family apr_family_deepseek_v3 = {.name = "deepseek_v3",
                                           .types = {{"deepseek_v3", "DeepseekV3ForCausalLM"},
                                                     {"kimi_k2", "DeepseekV3ForCausalLM"},
                                                     {"kimi_k25", "KimiK25ForConditionalGeneration"}},
                                           .ggml = "deepseek2",
                                           .gguf = {.more_keys = {APR_LATENT_KEYS}, .score_function = 2, .yarn_log_unit = 0.1},
                                           .config = &deepseek_v3,
                                           .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                    &apr_tensors_experts, &apr_tensors_shared_experts},
                                           .translates = true};

/* The class has no norm_topk_prob and no bias for the choice of experts. It uses groups only with "group_limited_greedy". */
/* deepseek_v2: groups count only with "group_limited_greedy". */
static apr_status settle_groups(const apr_config_reading *r)
{
    const cJSON *const method = apr_config_find(r, "topk_method");

    if (!cJSON_IsString(method) || strcmp(method->valuestring, "greedy") == 0) r->h->num_expert_groups = r->h->num_expert_groups_used = 0;
    return APR_OK;
}

static void put_groups(apr_json_text *out, const apr_hparams *h)
{
    apr_config_put_text(out, "topk_method", h->num_expert_groups > 0 ? "group_limited_greedy" : "greedy");
}

static const apr_family_config deepseek_v2 = {
    .activation = "silu",
    .experts = APR_EXPERTS_AFTER_DENSE,
    .spellings = {{APR_FIELD(num_experts), "n_routed_experts"}, {APR_FIELD(num_experts), "num_experts"}, {APR_FIELD(head_dim), ""}},
    .computes = APR_NAMES(APR_LATENT_FIELDS, "topk_method"),
    .settle = settle_groups,
    .put_own = put_groups,
    .refuses = APR_NAMES("attention_bias", "norm_topk_prob"),
    .accepts = {{"topk_method", APR_NAMES("greedy", "group_limited_greedy")}},
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-6,
    .defaults = {.num_heads = 32,
                 .intermediate_size = 11008,
                 .vocab_size = 102400,
                 .q_lora_rank = 1536,
                 .kv_lora_rank = 512,
                 .qk_nope_head_dim = 128,
                 .qk_rope_head_dim = 64,
                 .v_head_dim = 128,
                 .num_experts = 64,
                 .moe_intermediate_size = 1407,
                 .num_shared_experts = 2,
                 .routed_scaling_factor = 1.0},
    .dense_key = "first_k_dense_replace"};

/* Old files do not state how experts are scored; llama.cpp assumes softmax. */
const apr_family apr_family_deepseek_v2 = {.name = "deepseek_v2",
                                           .types = {{"deepseek_v2", "DeepseekV2ForCausalLM"}},
                                           .ggml = "deepseek2",
                                           .gguf = {.more_keys = {APR_LATENT_KEYS},
                                                    .chosen_by = {APR_KEY(expert_gating_func), 0, 1},
                                                    .score_function = 1,
                                                    .yarn_log_unit = 0.1,
                                                    .ranks_groups_by_two = true},
                                           .config = &deepseek_v2,
                                           .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                    &apr_tensors_experts, &apr_tensors_shared_experts},
                                           .translates = true};
