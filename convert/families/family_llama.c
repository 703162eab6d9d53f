/* family_llama.c - llama and its kin: Q and K rows lie in rotary pairs in ggml's dialect, in halves in Hugging Face's. */
#include "convert/families.h"

static const char *const architectures[] = {"llama", "mistral", NULL};

static const apr_name_rule rules[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_HEADS_NONE},
    {"model.norm.weight", "output_norm.weight", APR_HEADS_NONE},
    {"lm_head.weight", "output.weight", APR_HEADS_NONE},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", APR_HEADS_NONE},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", APR_HEADS_QUERY},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", APR_HEADS_QUERY},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", APR_HEADS_KEY},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", APR_HEADS_KEY},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", APR_HEADS_NONE},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", APR_HEADS_NONE},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", APR_HEADS_NONE},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", APR_HEADS_NONE},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", APR_HEADS_NONE},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", APR_HEADS_NONE},
    {"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", APR_HEADS_NONE},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", APR_HEADS_NONE},
    {"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", APR_HEADS_NONE},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", APR_HEADS_NONE},
    {"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", APR_HEADS_NONE},
};

const apr_family apr_family_llama = {architectures, rules, sizeof rules / sizeof *rules};
