/* family_hunyuan.c - hunyuan_v1_moe: norms of q and k after rope, shared experts without a gate. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.self_attn.query_layernorm.weight", "blk.{}.attn_q_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"model.layers.{}.self_attn.key_layernorm.weight", "blk.{}.attn_k_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"model.layers.{}.mlp.gate.wg.weight", "blk.{}.ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {"model.layers.{}.mlp.shared_mlp.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", APR_TENSOR_ROLE_FFN_GATE},
    {"model.layers.{}.mlp.shared_mlp.up_proj.weight", "blk.{}.ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP},
    {"model.layers.{}.mlp.shared_mlp.down_proj.weight", "blk.{}.ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN},
};

static const apr_family_config hunyuan_v1_moe = {.activation = "silu",
                                                 .attention_bias = APR_BIAS_WHEN_STATED,
                                                 .spellings = {{"num_experts_per_tok", "moe_topk"},
                                                               {"num_shared_experts", "num_shared_expert"},
                                                               {"head_dim", "head_dim"},
                                                               {"head_dim", "attention_head_dim"}},
                                                 .ff_is_expert = true,
                                                 .computes = " alpha ",
                                                 .requires = " use_qk_norm use_mixed_mlp_moe ",
                                                 .flags_always = " norm_topk_prob ",
                                                 .max_position_embeddings = 2048,
                                                 .rms_norm_eps = 1e-5,
                                                 .defaults = {{"num_heads", 32},
                                                              {"intermediate_size", 11008},
                                                              {"vocab_size", 290943},
                                                              {"num_experts", 1},
                                                              {"num_experts_per_tok", 1},
                                                              {"num_shared_experts", 1}}};

static const apr_hparams assumes = {.norm_topk_prob = true};

const apr_family apr_family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .types = {{"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"}},
    .ggml = "hunyuan-moe",
    .gguf = {.more_keys = " expert_shared_feed_forward_length expert_feed_forward_length expert_shared_count ", .assumes = &assumes},
    .config = &hunyuan_v1_moe,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_experts},
    .translates = true};
