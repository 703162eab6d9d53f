/* family_llama.c - llama and mistral: Q and K rows lie in rotary pairs in ggml's dialect, in halves in Hugging Face's. They differ
 * by mistral's window, and a mistral becomes ggml's "llama", the name that llama.cpp knows. */
#include "formats/model/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_FOR_EMBEDDING},
    {"model.norm.weight", "output_norm.weight", APR_FOR_SMALL},
    {"lm_head.weight", "output.weight", APR_FOR_HEAD},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", APR_FOR_ATTN_Q, APR_HEADS_QUERY},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", APR_FOR_SMALL, APR_HEADS_QUERY},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", APR_FOR_ATTN_K, APR_HEADS_KEY},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", APR_FOR_SMALL, APR_HEADS_KEY},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", APR_FOR_ATTN_V},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", APR_FOR_ATTN_OUT},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", APR_FOR_SMALL},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", APR_FOR_FFN_GATE},
    {"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", APR_FOR_SMALL},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", APR_FOR_SMALL},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", APR_FOR_SMALL},
};

#define COMMON                                                 \
    .ggml = "llama",                                           \
    .gguf = {.more_keys = " vocab_size rope.dimension_count ", \
             .omits_head_dim = true,                           \
             .takes_divisors = true,                           \
             .rotates_pairs = true,                            \
             .rotates_whole_heads = true},                     \
    .tensors = tensors, .n_tensors = sizeof tensors / sizeof *tensors, .translates = true, .program = {APR_PROGRAM_dense}

static const apr_family_config llama = {.activation = "silu",
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .mlp_bias = APR_BIAS_WHEN_STATED,
                                        .computes = " mlp_bias rmsnorm ",
                                        .refuses = " partial_rotary_factor sliding_window layer_types num_local_experts num_experts ",
                                        .max_position_embeddings = 2048,
                                        .rms_norm_eps = 1e-6};
const apr_family apr_family_llama = {.name = "llama", .types = {{"llama", "LlamaForCausalLM"}}, .config = &llama, COMMON};

/* transformers' mistral has no biases, and one window for all layers or none */
static const apr_family_config mistral = {.activation = "silu",
                                          .window = APR_WINDOW_ALL,
                                          .computes = " rmsnorm ",
                                          .refuses = " attention_bias partial_rotary_factor layer_types num_local_experts num_experts ",
                                          .num_kv_heads = 8,
                                          .max_position_embeddings = 131072,
                                          .sliding_window = 4096,
                                          .rms_norm_eps = 1e-6};
const apr_family apr_family_mistral = {.name = "mistral", .types = {{"mistral", "MistralForCausalLM"}}, .config = &mistral, COMMON};
