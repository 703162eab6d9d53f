/* family_qwen_moe.c - qwen2_moe and qwen3_moe: experts in tensors of their own (hub) or stacked with gate and up in one
 * (transformers 5); ggml has them stacked, gate and up apart. qwen2_moe has a gated shared expert besides. */
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
    {"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight", APR_FOR_ROUTER},
    {"model.layers.{}.mlp.experts.*.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.experts.*.up_proj.weight", "blk.{}.ffn_up_exps.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.experts.*.down_proj.weight", "blk.{}.ffn_down_exps.weight", APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.experts.down_proj", NULL, APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight", APR_FOR_ROUTER},
    {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight", APR_FOR_FFN_DOWN},
};

#define EXPERT_KEYS " expert_feed_forward_length expert_shared_feed_forward_length "

#define COMMON .tensors = tensors, .n_tensors = sizeof tensors / sizeof *tensors

#define CONFIG                                                                                                       \
    .activation = "silu", .window = APR_WINDOW_FROM_LAYER, .max_position_embeddings = 32768, .sliding_window = 4096, \
    .max_window_layers = 28, .rms_norm_eps = 1e-6

static const apr_family_config qwen2_moe = {CONFIG, .attention_bias = APR_BIAS_QKV_ALWAYS, .num_kv_heads = 16};
const apr_family apr_family_qwen2_moe = {.name = "qwen2_moe",
                                         .types = {{"qwen2_moe", "Qwen2MoeForCausalLM"}},
                                         .ggml = "qwen2moe",
                                         .gguf = {.more_keys = EXPERT_KEYS, .omits_head_dim = true},
                                         .config = &qwen2_moe,
                                         COMMON};

/* llama.cpp does so whatever the model says */
static const apr_hparams qwen3_moe_supposes = {.norm_topk_prob = true};

/* transformers' versions disagree about which layers of a qwen3_moe slide */
static const apr_family_config qwen3_moe = {CONFIG, .attention_bias = APR_BIAS_WHEN_STATED, .num_kv_heads = 4,
                                            .computes = " qk_layernorm use_qk_norm qk_norm ", .refuses = " use_sliding_window "};
const apr_family apr_family_qwen3_moe = {.name = "qwen3_moe",
                                         .types = {{"qwen3_moe", "Qwen3MoeForCausalLM"}},
                                         .ggml = "qwen3moe",
                                         .gguf = {.more_keys = EXPERT_KEYS, .supposes = &qwen3_moe_supposes},
                                         .config = &qwen3_moe,
                                         .program = {APR_PROGRAM_mixture, .qk_norm = true, .router = "mlp.gate"},
                                         COMMON};
