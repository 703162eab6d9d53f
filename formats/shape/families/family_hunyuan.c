/* family_hunyuan.c - hunyuan_v1_dense and hunyuan_v1_moe: norms of q and k after rope, shared experts without a gate. hy_v3: experts as
 * in DeepSeek V3, norms of q and k before rope. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

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
                                                 .spellings = {{APR_FIELD(num_experts_per_tok), "moe_topk"},
                                                               {APR_FIELD(num_shared_experts), "num_shared_expert"},
                                                               {APR_FIELD(head_dim), "head_dim"},
                                                               {APR_FIELD(head_dim), "attention_head_dim"}},
                                                 .ff_is_expert = true,
                                                 .computes = APR_NAMES("alpha"),
                                                 .requires = APR_NAMES("use_qk_norm", "use_mixed_mlp_moe"),
                                                 .flags_always = APR_FLAG(norm_topk_prob),
                                                 .max_position_embeddings = 2048,
                                                 .rms_norm_eps = 1e-5,
                                                 .defaults = {.num_heads = 32,
                                                              .intermediate_size = 11008,
                                                              .vocab_size = 290943,
                                                              .num_experts = 1,
                                                              .num_experts_per_tok = 1,
                                                              .num_shared_experts = 1}};

static const apr_hparams assumes = {.norm_topk_prob = true};

const apr_family apr_family_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .types = {{"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"}},
    .ggml = "hunyuan-moe",
    .gguf = {.more_keys = {APR_KEY(shared_expert_intermediate_size), APR_KEY(moe_intermediate_size), APR_KEY(num_shared_experts)},
             .assumes = &assumes},
    .config = &hunyuan_v1_moe,
    APR_OWN_TENSORS(tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_experts},
    .translates = true};

static const apr_tensor_rule dense_tensors[] = {
    {"model.layers.{}.self_attn.query_layernorm.weight", "blk.{}.attn_q_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"model.layers.{}.self_attn.key_layernorm.weight", "blk.{}.attn_k_norm.weight", APR_TENSOR_ROLE_SMALL},
};

/* Published files state 1 expert, and have none. */
static apr_status settle_one_expert(const apr_config_reading *r)
{
    if (r->h->num_experts == 1) r->h->num_experts = 0;
    return APR_OK;
}

static const apr_family_config hunyuan_v1_dense = {
    .activation = "silu",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(head_dim), "head_dim"}, {APR_FIELD(head_dim), "attention_head_dim"}},
    .computes = APR_NAMES("alpha"),
    .requires = APR_NAMES("use_qk_norm"),
    .settle = settle_one_expert,
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-5,
    .defaults = {.num_heads = 32, .intermediate_size = 11008, .vocab_size = 290943}};

const apr_family apr_family_hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    .types = {{"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"}},
    .ggml = "hunyuan-dense",
    .gguf = {.more_keys = {APR_NO_KEYS}},
    .config = &hunyuan_v1_dense,
    APR_OWN_TENSORS(dense_tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};

/* --- hy_v3 --- */

#define MLP "model.layers.{}.mlp."

static const apr_tensor_rule hy_v3_tensors[] = {
    {MLP "gate.e_score_correction_bias", "blk.{}.exp_probs_b", APR_TENSOR_ROLE_SMALL}, /* without ".bias" */
    {MLP "shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", APR_TENSOR_ROLE_FFN_GATE},
    {MLP "shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP},
    {MLP "shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN},
};

/* Checkpoints have other names than transformers' class. */
static const apr_tensor_form hy_v3_forms[] = {
    APR_ALSO_CALLED(MLP "router.gate.weight", MLP "gate.weight"),
    APR_ALSO_CALLED(MLP "expert_bias", MLP "gate.e_score_correction_bias"),
    APR_ALSO_CALLED(MLP "shared_mlp.gate_proj.weight", MLP "shared_experts.gate_proj.weight"),
    APR_ALSO_CALLED(MLP "shared_mlp.up_proj.weight", MLP "shared_experts.up_proj.weight"),
    APR_ALSO_CALLED(MLP "shared_mlp.down_proj.weight", MLP "shared_experts.down_proj.weight"),
};

static const apr_family_config hy_v3 = {
    .activation = "silu",
    .experts = APR_EXPERTS_AFTER_DENSE,
    .dense_key = "first_k_dense_replace",
    .n_dense = 1,
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(num_experts), "num_experts"},
                  {APR_FIELD(num_experts), "num_local_experts"},
                  {APR_FIELD(num_shared_experts), "num_shared_experts"},
                  {APR_FIELD(routed_scaling_factor), "router_scaling_factor"},
                  {APR_FIELD(use_qk_norm), ""}},
    .computes = APR_NAMES("first_k_dense_replace", "mlp_layer_types", "qk_norm", "use_qk_norm", "enable_moe_fp32_combine"),
    .requires = APR_NAMES("route_norm"),
    .flags_always = APR_FLAG(norm_topk_prob) | APR_FLAG(use_qk_norm),
    .num_kv_heads = 8,
    .head_dim = 128,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-5,
    .rope_theta = 11158840,
    .defaults = {.num_heads = 64,
                 .intermediate_size = 13312,
                 .vocab_size = 120832,
                 .num_experts = 192,
                 .num_experts_per_tok = 8,
                 .num_shared_experts = 1,
                 .moe_intermediate_size = 1536,
                 .routed_scaling_factor = 2.826}};

static const apr_hparams hy_v3_assumes = {.norm_topk_prob = true, .use_qk_norm = true};

/* llama.cpp finds dense layers by their tensors. Its converter does not count them; published models have one. */
const apr_family apr_family_hy_v3 = {.name = "hy_v3",
                                     .types = {{"hy_v3", "HYV3ForCausalLM"}},
                                     .ggml = "hy_v3",
                                     .gguf = {.more_keys = {APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY(moe_intermediate_size),
                                                            APR_KEY(shared_expert_intermediate_size), APR_KEY_ALWAYS(norm_topk_prob),
                                                            APR_KEY(routed_scaling_factor), APR_KEY(num_nextn_layers)},
                                              .assumes = &hy_v3_assumes,
                                              .n_dense = 1,
                                              .score_function = 2},
                                     .config = &hy_v3,
                                     APR_OWN_TENSORS(hy_v3_tensors),
                                     APR_OWN_FORMS(hy_v3_forms),
                                     .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm,
                                              &apr_tensors_dense, &apr_tensors_experts},
                                     .translates = true};
