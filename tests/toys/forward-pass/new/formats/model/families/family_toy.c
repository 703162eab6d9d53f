/* family_toy.c - a family with a forward pass of its own. */
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
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", APR_FOR_FFN_DOWN},
};

static const apr_family_config config = {.activation = "silu", .rms_norm_eps = 1e-6, .computes = " qk_norm "};

const apr_family apr_family_toy = {.name = "toy",
                                   .types = {{"toy", "ToyForCausalLM"}},
                                   .ggml = "toy-arch",
                                   .config = &config,
                                   .tensors = tensors,
                                   .n_tensors = sizeof tensors / sizeof *tensors,
                                   .translates = true,
                                   .program = {APR_PROGRAM_toy, .qk_norm = true}};
