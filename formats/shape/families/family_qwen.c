/* family_qwen.c - dense qwen2 and qwen3: both naming schemes use rotary halves, only the names differ. qwen2 has biases on q, k and v;
 * qwen3 has norms on the heads of q and k. The text parts of Qwen2-VL, Qwen2.5-VL and Qwen3-VL compute the same; ggml has its own names
 * for them, because images have positions in three directions. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define COMMON \
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm, &apr_tensors_dense}, .translates = true

#define CONFIG                                                                                                       \
    .activation = "silu", .window = APR_WINDOW_FROM_LAYER, .refuses = APR_NAMES("num_local_experts", "num_experts"), \
    .max_position_embeddings = 32768, .sliding_window = 4096, .max_window_layers = 28, .rms_norm_eps = 1e-6

static const apr_family_config qwen2 = {CONFIG, .attention_bias = APR_BIAS_QKV_ALWAYS, .computes = APR_NAMES("rmsnorm")};

const apr_family apr_family_qwen2 = {.name = "qwen2",
                                     .types = {{"qwen2", "Qwen2ForCausalLM"}},
                                     .ggml = "qwen2",
                                     .gguf = {.more_keys = {APR_NO_KEYS}, .omits_head_dim = true, .heads_fill_hidden = true},
                                     .config = &qwen2,
                                     COMMON};

static const apr_family_config qwen2_vl = {.activation = "silu",
                                           .window = APR_WINDOW_FROM_LAYER,
                                           .attention_bias = APR_BIAS_QKV_ALWAYS,
                                           .computes = APR_NAMES("rmsnorm", "mrope_section"),
                                           .refuses = APR_NAMES("num_local_experts", "num_experts"),
                                           .num_kv_heads = 8,
                                           .max_position_embeddings = 32768,
                                           .sliding_window = 4096,
                                           .max_window_layers = 80,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 1e6};

/* llama.cpp d32676d does not read the norms' epsilon of a qwen2vl and takes 0: its logits are off by about 5e-5, and by 1e-6 from a model
 * whose epsilon is 0. */
const apr_family apr_family_qwen2_vl = {
    .name = "qwen2_vl",
    .types = {{"qwen2_vl", "Qwen2VLForConditionalGeneration"}, {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"}},
    .text_only = {"qwen2", "Qwen2ForCausalLM"},
    .ggml = "qwen2vl",
    .gguf = {.more_keys = {APR_NO_KEYS}, .omits_head_dim = true, .writes_sections = true, .heads_fill_hidden = true},
    .config = &qwen2_vl,
    COMMON};

#define QWEN3_WITH(more)                                             \
    CONFIG, .attention_bias = APR_BIAS_WHEN_STATED, .head_dim = 128, \
            .computes = APR_NAMES("rmsnorm", "qk_layernorm", "use_qk_norm", "qk_norm", more)

static const apr_family_config qwen3 = {QWEN3_WITH(NULL)};

const apr_family apr_family_qwen3 = {.name = "qwen3",
                                     .types = {{"qwen3", "Qwen3ForCausalLM"}},
                                     .ggml = "qwen3",
                                     .gguf = {.more_keys = {APR_NO_KEYS}},
                                     .config = &qwen3,
                                     COMMON};

/* The class's defaults, but for those of CONFIG. */
static const apr_family_config qwen3_vl = {QWEN3_WITH("mrope_section"), .rope_theta = 500000, .num_kv_heads = 32};

const apr_family apr_family_qwen3_vl = {.name = "qwen3_vl",
                                        .types = {{"qwen3_vl", "Qwen3VLForConditionalGeneration"}},
                                        .text_only = {"qwen3", "Qwen3ForCausalLM"},
                                        .ggml = "qwen3vl",
                                        .gguf = {.more_keys = {APR_KEY_ALWAYS(num_deepstack_layers)}, .writes_sections = true},
                                        .config = &qwen3_vl,
                                        COMMON};
