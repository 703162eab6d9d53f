/* family_glm.c - glm4 (norms before and after attention and feed-forward), glm4_moe, glm4_moe_lite (latent attention);
 * solar_open and dots1, which differ from glm4_moe by little. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config glm4 = {.activation = "silu",
                                       .attention_bias = APR_BIAS_QKV_WHEN_STATED,
                                       .flags_on = APR_FLAG(attention_bias),
                                       .num_kv_heads = 2,
                                       .head_dim = 128,
                                       .max_position_embeddings = 131072,
                                       .rms_norm_eps = 1.5625e-07,
                                       .partial_rotary_factor = 0.5,
                                       .defaults = {.num_heads = 32, .intermediate_size = 13696, .vocab_size = 151552}};

/* Gate and up are one matrix in both naming schemes. */
static const apr_tensor_rule glm4_tensors[] = {
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"model.layers.{}.post_self_attn_layernorm.weight", "blk.{}.post_attention_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight", APR_TENSOR_ROLE_SMALL},
};

const apr_family apr_family_glm4 = {.name = "glm4",
                                    .types = {{"glm4", "Glm4ForCausalLM"}},
                                    .ggml = "glm4",
                                    .gguf = {.more_keys = {APR_KEY(rotary_dim)}},
                                    .config = &glm4,
                                    APR_OWN_TENSORS(glm4_tensors),
                                    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_dense},
                                    .translates = true};

#define EXPERTS                                                                                                                   \
    .experts = APR_EXPERTS_AFTER_DENSE, .dense_key = "first_k_dense_replace", .n_dense = 1, .flags_on = APR_FLAG(norm_topk_prob), \
    .accepts = {{"scoring_func", APR_NAMES("sigmoid")}, {"topk_method", APR_NAMES("noaux_tc")}}, .rms_norm_eps = 1e-5

#define EXPERT_FIELDS "n_group", "routed_scaling_factor", "first_k_dense_replace", "mlp_layer_types", "n_shared_experts"

#define EXPERT_SPELLINGS                                                                         \
    {APR_FIELD(num_experts), "n_routed_experts"}, {APR_FIELD(num_experts), "num_local_experts"}, \
        {APR_FIELD(num_nextn_layers), "num_nextn_predict_layers"},                               \
    {                                                                                            \
        APR_FIELD(num_nextn_layers), "num_mtp_layers"                                            \
    }

static const apr_family_config glm4_moe = {.activation = "silu",
                                           EXPERTS,
                                           .attention_bias = APR_BIAS_QKV_WHEN_STATED,
                                           .spellings = {EXPERT_SPELLINGS},
                                           .computes = APR_NAMES(EXPERT_FIELDS, "use_qk_norm"),
                                           .flags_shown = APR_FLAG(use_qk_norm),
                                           .num_kv_heads = 8,
                                           .max_position_embeddings = 131072,
                                           .partial_rotary_factor = 0.5,
                                           .defaults = {.num_heads = 96,
                                                        .intermediate_size = 10944,
                                                        .vocab_size = 151552,
                                                        .num_experts = 128,
                                                        .num_experts_per_tok = 8,
                                                        .moe_intermediate_size = 1408,
                                                        .num_shared_experts = 1,
                                                        .num_expert_groups = 1,
                                                        .num_expert_groups_used = 1,
                                                        .routed_scaling_factor = 1.0}};

const apr_family apr_family_glm4_moe = {
    .name = "glm4_moe",
    .types = {{"glm4_moe", "Glm4MoeForCausalLM"}},
    .ggml = "glm4moe",
    .gguf = {.more_keys = {APR_KEY(rotary_dim), APR_KEY(moe_intermediate_size), APR_KEY(num_shared_experts),
                           APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY(routed_scaling_factor), APR_KEY_ALWAYS(norm_topk_prob),
                           APR_KEY_ALWAYS(num_nextn_layers)},
             .score_function = 2,
             .qk_norm_in_tensors = true},
    .config = &glm4_moe,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_post_norm, &apr_tensors_dense,
             &apr_tensors_experts, &apr_tensors_shared_experts},
    .translates = true};

static const apr_family_config glm4_moe_lite = {.activation = "silu",
                                                EXPERTS,
                                                .spellings = {EXPERT_SPELLINGS, {APR_FIELD(head_dim), ""}},
                                                .computes = APR_NAMES(EXPERT_FIELDS, "kv_lora_rank", "q_lora_rank"),
                                                .refuses = APR_NAMES("attention_bias"),
                                                .requires = APR_NAMES("rope_interleave"),
                                                .num_kv_heads = 20,
                                                .max_position_embeddings = 202752,
                                                .defaults = {.num_heads = 20,
                                                             .intermediate_size = 10240,
                                                             .vocab_size = 154880,
                                                             .q_lora_rank = 768,
                                                             .kv_lora_rank = 512,
                                                             .qk_nope_head_dim = 192,
                                                             .qk_rope_head_dim = 64,
                                                             .v_head_dim = 256,
                                                             .num_experts = 64,
                                                             .num_experts_per_tok = 4,
                                                             .moe_intermediate_size = 1536,
                                                             .num_shared_experts = 1,
                                                             .num_expert_groups = 1,
                                                             .num_expert_groups_used = 1,
                                                             .routed_scaling_factor = 1.8}};

/* The size of the vocabulary distinguishes it from a deepseek, as in llama.cpp. */
const apr_family apr_family_glm4_moe_lite = {.name = "glm4_moe_lite",
                                             .types = {{"glm4_moe_lite", "Glm4MoeLiteForCausalLM"}},
                                             .ggml = "deepseek2",
                                             .gguf = {.more_keys = {APR_LATENT_KEYS, APR_KEY(num_nextn_layers)},
                                                      .chosen_by = {APR_KEY(vocab_size), 154880, 154880},
                                                      .score_function = 2,
                                                      .yarn_log_unit = 0.1},
                                             .config = &glm4_moe_lite,
                                             .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense,
                                                      &apr_tensors_experts, &apr_tensors_shared_experts},
                                             .translates = true};

/* --- no norms of q and k, no dense layers, whole heads are rotated --- */

static const apr_family_config solar_open = {.activation = "silu",
                                             .attention_bias = APR_BIAS_QKV_WHEN_STATED,
                                             .spellings = {EXPERT_SPELLINGS},
                                             .accepts = {{"scoring_func", APR_NAMES("sigmoid")}, {"topk_method", APR_NAMES("noaux_tc")}},
                                             .computes = APR_NAMES("n_group", "routed_scaling_factor", "n_shared_experts"),
                                             .flags_on = APR_FLAG(norm_topk_prob),
                                             .num_kv_heads = 8,
                                             .head_dim = 128,
                                             .max_position_embeddings = 131072,
                                             .rms_norm_eps = 1e-5,
                                             .rope_theta = 1e6,
                                             .partial_rotary_factor = 1.0,
                                             .defaults = {.num_heads = 64,
                                                          .vocab_size = 196608,
                                                          .num_experts = 128,
                                                          .num_experts_per_tok = 8,
                                                          .moe_intermediate_size = 1280,
                                                          .num_shared_experts = 1,
                                                          .num_expert_groups = 1,
                                                          .num_expert_groups_used = 1,
                                                          .routed_scaling_factor = 1.0}};

#define SETS                                                                                   \
    .sets = {&apr_tensors_ends,  &apr_tensors_attention, &apr_tensors_qk_norm,       FFN_NORM, \
             &apr_tensors_dense, &apr_tensors_experts,   &apr_tensors_shared_experts},         \
    .translates = true

/* In GGUF it is a glm4_moe, and such a file is read as one. */
#define FFN_NORM &apr_tensors_ffn_post_norm
const apr_family apr_family_solar_open = {
    .name = "solar_open",
    .types = {{"solar_open", "SolarOpenForCausalLM"}},
    .ggml = "glm4moe",
    .gguf = {.more_keys = {APR_KEY(rotary_dim), APR_KEY(moe_intermediate_size), APR_KEY(num_shared_experts),
                           APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY(routed_scaling_factor), APR_KEY_ALWAYS(norm_topk_prob),
                           APR_KEY_ALWAYS(num_nextn_layers)},
             .score_function = 2},
    .config = &solar_open,
    SETS};
#undef FFN_NORM

/* --- norms of q and k always --- */

static const apr_family_config dots1 = {
    .activation = "silu",
    .window = APR_WINDOW_LAST,
    .experts = APR_EXPERTS_AFTER_DENSE,
    .dense_key = "first_k_dense_replace",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {EXPERT_SPELLINGS, {APR_FIELD(use_qk_norm), ""}},
    .accepts = {{"scoring_func", APR_NAMES("sigmoid", "noaux_tc")}, {"topk_method", APR_NAMES("noaux_tc")}},
    .computes = APR_NAMES(EXPERT_FIELDS, "use_qk_norm"),
    .flags_always = APR_FLAG(use_qk_norm),
    .num_kv_heads = 32,
    .max_position_embeddings = 2048,
    .sliding_window = 4096,
    .max_window_layers = 62,
    .rms_norm_eps = 1e-6,
    .defaults = {.num_heads = 32,
                 .intermediate_size = 10944,
                 .vocab_size = 152064,
                 .moe_intermediate_size = 1408,
                 .num_expert_groups = 1,
                 .num_expert_groups_used = 1,
                 .routed_scaling_factor = 1.0}};

static const apr_hparams dots1_assumes = {.use_qk_norm = true};

#define FFN_NORM &apr_tensors_ffn_norm
const apr_family apr_family_dots1 = {
    .name = "dots1",
    .types = {{"dots1", "Dots1ForCausalLM"}},
    .ggml = "dots1",
    .gguf = {.more_keys = {APR_KEY(moe_intermediate_size), APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY_ALWAYS(num_shared_experts),
                           APR_KEY(routed_scaling_factor), APR_KEY_ALWAYS(norm_topk_prob)},
             .assumes = &dots1_assumes,
             .score_function = 2,
             .all_heads_have_keys = true},
    .config = &dots1,
    SETS};
