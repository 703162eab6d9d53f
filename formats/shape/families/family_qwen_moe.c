/* family_qwen_moe.c - qwen2_moe, qwen3_moe and qwen3_vl_moe. Experts are single tensors (hub), or stacked with gate and up in one (transformers 5).
 * ggml stacks them and keeps gate and up apart. qwen2_moe also has a gated shared expert. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define EXPERT_KEYS APR_KEY(moe_intermediate_size), APR_KEY(shared_expert_intermediate_size)

#define COMMON                                                                                             \
    .sets = {&apr_tensors_ends,  &apr_tensors_attention, &apr_tensors_qk_norm,      &apr_tensors_ffn_norm, \
             &apr_tensors_dense, &apr_tensors_experts,   &apr_tensors_shared_expert},                      \
    .translates = true

#define CONFIG                                                                                                       \
    .activation = "silu", .window = APR_WINDOW_FROM_LAYER, .max_position_embeddings = 32768, .sliding_window = 4096, \
    .max_window_layers = 28, .rms_norm_eps = 1e-6, .experts = APR_EXPERTS_BY_STEP

/* The versions of transformers disagree about which layers slide. */
static const apr_family_config qwen2_moe = {CONFIG,
                                            .attention_bias = APR_BIAS_QKV_ALWAYS,
                                            .computes = APR_NAMES("decoder_sparse_step", "mlp_only_layers"),
                                            .refuses = APR_NAMES("use_sliding_window"),
                                            .num_kv_heads = 16,
                                            .defaults = {.num_heads = 16,
                                                         .intermediate_size = 5632,
                                                         .vocab_size = 151936,
                                                         .num_experts = 60,
                                                         .num_experts_per_tok = 4,
                                                         .moe_intermediate_size = 1408,
                                                         .shared_expert_intermediate_size = 5632}};

const apr_family apr_family_qwen2_moe = {.name = "qwen2_moe",
                                         .types = {{"qwen2_moe", "Qwen2MoeForCausalLM"}},
                                         .ggml = "qwen2moe",
                                         .gguf = {.more_keys = {EXPERT_KEYS}, .omits_head_dim = true},
                                         .config = &qwen2_moe,
                                         COMMON};

/* --- qwen3_moe, and the text part of Qwen3-VL --- */

/* llama.cpp assumes it whatever the model states. */
static const apr_hparams qwen3_moe_supposes = {.norm_topk_prob = true};

#define QWEN3_WITH(more)                                                                                             \
    .attention_bias = APR_BIAS_WHEN_STATED,                                                                          \
    .spellings = {{APR_FIELD(num_experts), "num_experts"}, {APR_FIELD(num_experts), "num_local_experts"}},           \
    .computes = APR_NAMES("qk_layernorm", "use_qk_norm", "qk_norm", "decoder_sparse_step", "mlp_only_layers", more), \
    .refuses = APR_NAMES("use_sliding_window")

static const apr_family_config qwen3_moe = {CONFIG, QWEN3_WITH(NULL), .num_kv_heads = 4,
                                            .defaults = {.num_heads = 32,
                                                         .intermediate_size = 6144,
                                                         .vocab_size = 151936,
                                                         .num_experts = 128,
                                                         .num_experts_per_tok = 8,
                                                         .moe_intermediate_size = 768}};

const apr_family apr_family_qwen3_moe = {.name = "qwen3_moe",
                                         .types = {{"qwen3_moe", "Qwen3MoeForCausalLM"}},
                                         .ggml = "qwen3moe",
                                         .gguf = {.more_keys = {EXPERT_KEYS}, .assumes = &qwen3_moe_supposes},
                                         .config = &qwen3_moe,
                                         COMMON};

static const apr_family_config qwen3_vl_moe = {CONFIG,
                                               QWEN3_WITH("mrope_section"),
                                               .flags_on = APR_FLAG(norm_topk_prob) | APR_FLAG(tie_word_embeddings),
                                               .num_kv_heads = 16,
                                               .rope_theta = 500000,
                                               .defaults = {.num_heads = 16,
                                                            .intermediate_size = 5632,
                                                            .vocab_size = 151936,
                                                            .num_experts = 60,
                                                            .num_experts_per_tok = 4,
                                                            .moe_intermediate_size = 1408}};

/* Published checkpoints have the experts as [hidden, gate and up] and [width, hidden], transformers 5 transposes both. */
#define EXPERTS "model.layers.{}.mlp.experts."

static const apr_tensor_form transposed_gate_up = {.naming = APR_NAMING_HF,
                                                   .use = APR_FORM_READ,
                                                   .name = EXPERTS "gate_up_proj",
                                                   .parts = {{EXPERTS "*.gate_proj.weight", {APR_TRANSPOSED, APR_FIRST_HALF}},
                                                             {EXPERTS "*.up_proj.weight", {APR_TRANSPOSED, APR_SECOND_HALF}}}};

static const apr_tensor_form transposed_down = {.naming = APR_NAMING_HF,
                                                .use = APR_FORM_READ,
                                                .name = EXPERTS "down_proj",
                                                .parts = {{EXPERTS "*.down_proj.weight", {APR_TRANSPOSED}}}};

static const apr_tensor_form either_order[] = {
    {.naming = APR_NAMING_HF,
     .use = APR_FORM_READ,
     .name = EXPERTS "gate_up_proj",
     .parts = APR_GATE_AND_UP(EXPERTS "*."),
     .transposed = &transposed_gate_up,
     .hidden_axis = 0},
    {.naming = APR_NAMING_HF,
     .use = APR_FORM_READ,
     .name = EXPERTS "down_proj",
     .parts = {{EXPERTS "*.down_proj.weight", {{0}}}},
     .transposed = &transposed_down,
     .hidden_axis = 1},
};

const apr_family apr_family_qwen3_vl_moe = {
    .name = "qwen3_vl_moe",
    .types = {{"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"}},
    .text_only = {"qwen3_moe", "Qwen3MoeForCausalLM"},
    .ggml = "qwen3vlmoe",
    .gguf = {.more_keys = {EXPERT_KEYS, APR_KEY_ALWAYS(num_deepstack_layers)}, .assumes = &qwen3_moe_supposes, .writes_sections = true},
    .config = &qwen3_vl_moe,
    APR_OWN_FORMS(either_order),
    COMMON};

/* --- mellum: windows, a rotary base for each kind of layer --- */

static const apr_family_config mellum = {.activation = "silu",
                                         .experts = APR_EXPERTS_AFTER_DENSE,
                                         .dense_key = "first_k_dense_replace",
                                         .attention_bias = APR_BIAS_WHEN_STATED,
                                         .spellings = {{APR_FIELD(num_experts), "num_local_experts"},
                                                       {APR_FIELD(num_experts), "num_experts"},
                                                       {APR_FIELD(num_nextn_layers), "num_nextn_predict_layers"},
                                                       {APR_FIELD(num_nextn_layers), "num_mtp_layers"},
                                                       {APR_FIELD(rope_theta_local), ""}},
                                         .local_rope = true,
                                         .computes = APR_NAMES("mlp_layer_types", "mtp_layer_types", "mtp_mlp_layer_types"),
                                         .flags_on = APR_FLAG(norm_topk_prob),
                                         .num_kv_heads = 4,
                                         .head_dim = 128,
                                         .max_position_embeddings = 131072,
                                         .sliding_window = 1024,
                                         .rms_norm_eps = 1e-6,
                                         .rope_theta = 500000,
                                         .defaults = {.num_heads = 32,
                                                      .intermediate_size = 7168,
                                                      .vocab_size = 98304,
                                                      .num_experts = 64,
                                                      .num_experts_per_tok = 8,
                                                      .moe_intermediate_size = 896,
                                                      .rope_theta_local = 1e4}};

const apr_family apr_family_mellum = {
    .name = "mellum",
    .types = {{"mellum", "MellumForCausalLM"}},
    .ggml = "mellum",
    .gguf = {.more_keys = {APR_KEY(moe_intermediate_size), APR_KEY(sliding_window), APR_KEY(sliding_window_pattern)},
             .assumes = &qwen3_moe_supposes,
             .full_every = 4,
             .has_one_base = true,
             .has_window = true},
    .config = &mellum,
    COMMON};
