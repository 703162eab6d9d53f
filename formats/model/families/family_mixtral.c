/* family_mixtral.c - mixtral: mistral's attention, and experts, whose own tensors (w1, w2, w3) no recipe touches yet. */
#include "formats/model/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_FOR_EMBEDDING},
    {"model.norm.weight", "output_norm.weight", APR_FOR_SMALL},
    {"lm_head.weight", "output.weight", APR_FOR_HEAD},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", APR_FOR_ATTN_Q},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", APR_FOR_ATTN_K},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", APR_FOR_ATTN_V},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", APR_FOR_ATTN_OUT},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight", APR_FOR_ROUTER},
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.experts.down_proj", NULL, APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.gate.weight", NULL, APR_FOR_ROUTER},
};

static const apr_family_config config = {.activation = "silu",
                                         .window = APR_WINDOW_ALL,
                                         .spellings = {{"num_experts", "num_local_experts"}},
                                         .ff_is_expert = true,
                                         .refuses = " attention_bias layer_types ",
                                         .num_kv_heads = 8,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 1e6};

static const apr_hparams supposes = {.norm_topk_prob = true};

/* ggml's "llama" with experts */
const apr_family apr_family_mixtral = {.name = "mixtral",
                                       .types = {{"mixtral", "MixtralForCausalLM"}},
                                       .ggml = "llama",
                                       .gguf = {.more_keys = " vocab_size rope.dimension_count ",
                                                .chosen_by = {"expert_count", 1, INT64_MAX},
                                                .supposes = &supposes,
                                                .omits_head_dim = true,
                                                .takes_divisors = true,
                                                .rotates_pairs = true,
                                                .rotates_whole_heads = true},
                                       .config = &config,
                                       .tensors = tensors,
                                       .n_tensors = sizeof tensors / sizeof *tensors};
