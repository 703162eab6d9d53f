/* family_qwen_moe.c - qwen2_moe and qwen3_moe. Experts are single tensors (hub), or stacked with gate and up in one (transformers 5).
 * ggml stacks them and keeps gate and up apart. qwen2_moe also has a gated shared expert. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define EXPERT_KEYS " expert_feed_forward_length expert_shared_feed_forward_length "

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
                                            .computes = " decoder_sparse_step mlp_only_layers ",
                                            .refuses = " use_sliding_window ",
                                            .num_kv_heads = 16,
                                            .defaults = {{"num_heads", 16},
                                                         {"intermediate_size", 5632},
                                                         {"vocab_size", 151936},
                                                         {"num_experts", 60},
                                                         {"num_experts_per_tok", 4},
                                                         {"moe_intermediate_size", 1408},
                                                         {"shared_expert_intermediate_size", 5632}}};

const apr_family apr_family_qwen2_moe = {.name = "qwen2_moe",
                                         .types = {{"qwen2_moe", "Qwen2MoeForCausalLM"}},
                                         .ggml = "qwen2moe",
                                         .gguf = {.more_keys = EXPERT_KEYS, .omits_head_dim = true},
                                         .config = &qwen2_moe,
                                         COMMON};

/* llama.cpp assumes it whatever the model states. */
static const apr_hparams qwen3_moe_supposes = {.norm_topk_prob = true};

static const apr_family_config qwen3_moe = {CONFIG,
                                            .attention_bias = APR_BIAS_WHEN_STATED,
                                            .spellings = {{"num_experts", "num_experts"}, {"num_experts", "num_local_experts"}},
                                            .computes = " qk_layernorm use_qk_norm qk_norm decoder_sparse_step mlp_only_layers ",
                                            .refuses = " use_sliding_window ",
                                            .num_kv_heads = 4,
                                            .defaults = {{"num_heads", 32},
                                                         {"intermediate_size", 6144},
                                                         {"vocab_size", 151936},
                                                         {"num_experts", 128},
                                                         {"num_experts_per_tok", 8},
                                                         {"moe_intermediate_size", 768}}};

const apr_family apr_family_qwen3_moe = {.name = "qwen3_moe",
                                         .types = {{"qwen3_moe", "Qwen3MoeForCausalLM"}},
                                         .ggml = "qwen3moe",
                                         .gguf = {.more_keys = EXPERT_KEYS, .assumes = &qwen3_moe_supposes},
                                         .config = &qwen3_moe,
                                         COMMON};
