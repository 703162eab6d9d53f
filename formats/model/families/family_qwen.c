/* family_qwen.c - qwen2 and qwen3, dense: both dialects keep rotary halves, only the names differ. qwen2 has biases on q, k and v,
 * qwen3 norms on the heads of q and k. */
#include "formats/model/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_FOR_EMBEDDING},
    {"model.norm.weight", "output_norm.weight", APR_FOR_SMALL},
    {"lm_head.weight", "output.weight", APR_FOR_HEAD},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", APR_FOR_ATTN_Q},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", APR_FOR_ATTN_K},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", APR_FOR_ATTN_V},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", APR_FOR_ATTN_OUT},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", APR_FOR_FFN_DOWN},
};

#define COMMON .tensors = tensors, .n_tensors = sizeof tensors / sizeof *tensors, .translates = true

#define CONFIG                                                                                                                             \
    .activation = "silu", .window = APR_WINDOW_FROM_LAYER, .refuses = " num_local_experts num_experts ", .max_position_embeddings = 32768, \
    .sliding_window = 4096, .max_window_layers = 28, .rms_norm_eps = 1e-6

static const apr_family_config qwen2 = {CONFIG, .attention_bias = APR_BIAS_QKV_ALWAYS, .computes = " rmsnorm "};
const apr_family apr_family_qwen2 = {.name = "qwen2",
                                     .types = {{"qwen2", "Qwen2ForCausalLM"}},
                                     .ggml = "qwen2",
                                     .gguf = {.more_keys = " ", .omits_head_dim = true, .heads_fill_hidden = true},
                                     .config = &qwen2,
                                     .program = {APR_PROGRAM_dense},
                                     COMMON};

static const apr_family_config qwen3 = {CONFIG, .attention_bias = APR_BIAS_WHEN_STATED, .head_dim = 128,
                                        .computes = " rmsnorm qk_layernorm use_qk_norm qk_norm "};
const apr_family apr_family_qwen3 = {.name = "qwen3",
                                     .types = {{"qwen3", "Qwen3ForCausalLM"}},
                                     .ggml = "qwen3",
                                     .gguf = {.more_keys = " "},
                                     .config = &qwen3,
                                     .program = {APR_PROGRAM_dense, .qk_norm = true},
                                     COMMON};
