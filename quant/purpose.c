/* purpose.c - a table of name endings, for Hugging Face's names and for ggml's. */
#include "quant/purpose.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The first rule whose text ends the name (before ".weight") decides. */
static const struct {
    const char *ending;
    apr_purpose purpose;
} rules[] = {
    {"embed_tokens", APR_FOR_EMBEDDING},
    {"token_embd", APR_FOR_EMBEDDING},
    {"lm_head", APR_FOR_HEAD},
    {"output", APR_FOR_HEAD}, /* whole name only: see below */
    {".q_proj", APR_FOR_ATTN_Q},
    {".attn_q", APR_FOR_ATTN_Q},
    {".k_proj", APR_FOR_ATTN_K},
    {".attn_k", APR_FOR_ATTN_K},
    {".v_proj", APR_FOR_ATTN_V},
    {".attn_v", APR_FOR_ATTN_V},
    {".qkv_proj", APR_FOR_ATTN_QKV},
    {".in_proj_qkv", APR_FOR_ATTN_QKV},
    {".in_proj_qkvz", APR_FOR_ATTN_QKV},
    {".attn_qkv", APR_FOR_ATTN_QKV},
    {".o_proj", APR_FOR_ATTN_OUT},
    {".linear_attn.out_proj", APR_FOR_ATTN_OUT},
    {".attn_output", APR_FOR_ATTN_OUT},
    {".ssm_out", APR_FOR_ATTN_OUT},
    {".in_proj_z", APR_FOR_ATTN_GATE},
    {".attn_gate", APR_FOR_ATTN_GATE},
    {".gate_up_proj", APR_FOR_FFN_UP},
    {".gate_proj", APR_FOR_FFN_GATE},
    {".up_proj", APR_FOR_FFN_UP},
    {".down_proj", APR_FOR_FFN_DOWN},
    {".ffn_gate", APR_FOR_FFN_GATE},
    {".ffn_up", APR_FOR_FFN_UP},
    {".ffn_down", APR_FOR_FFN_DOWN},
    {".ffn_gate_exps", APR_FOR_FFN_GATE},
    {".ffn_up_exps", APR_FOR_FFN_UP},
    {".ffn_gate_up_exps", APR_FOR_FFN_UP},
    {".ffn_down_exps", APR_FOR_FFN_DOWN},
    {".ffn_gate_shexp", APR_FOR_FFN_GATE},
    {".ffn_up_shexp", APR_FOR_FFN_UP},
    {".ffn_down_shexp", APR_FOR_FFN_DOWN},
    {".mlp.gate", APR_FOR_ROUTER},
    {".mlp.router", APR_FOR_ROUTER},
    {".block_sparse_moe.gate", APR_FOR_ROUTER},
    {".ffn_gate_inp", APR_FOR_ROUTER},
    {".shared_expert_gate", APR_FOR_ROUTER},
    {".ffn_gate_inp_shexp", APR_FOR_ROUTER},
    {"norm", APR_FOR_SMALL},
    {"layernorm", APR_FOR_SMALL},
    {"conv1d", APR_FOR_SMALL},
    {"rope_freqs", APR_FOR_SMALL},
    {"sinks", APR_FOR_SMALL},
};

/* The number behind "layers." or "blk.", or -1. */
static int64_t layer_of(const char *name)
{
    static const char *const marks[] = {"layers.", "blk.", "layer."};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *const at = strstr(name, marks[i]);
        if (at != NULL && isdigit((unsigned char)at[strlen(marks[i])])) return strtoll(at + strlen(marks[i]), NULL, 10);
    }
    return -1;
}

apr_purpose_of_tensor apr_find_purpose(const apr_tensor *tensor)
{
    const char *const name = tensor->name;
    apr_purpose_of_tensor found = {APR_FOR_OTHER, layer_of(name)};
    size_t n = strlen(name);

    if (tensor->rank < 2) {
        found.purpose = APR_FOR_SMALL;
        return found;
    }
    if (n > 7 && strcmp(name + n - 7, ".weight") == 0) n -= 7;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const size_t m = strlen(rules[i].ending);
        if (n < m || memcmp(name + n - m, rules[i].ending, m) != 0) continue;
        if (strcmp(rules[i].ending, "output") == 0 && n != m) continue;
        found.purpose = rules[i].purpose;
        return found;
    }
    return found;
}

const char *apr_purpose_name(apr_purpose purpose)
{
    static const char *const names[APR_FOR_COUNT] = {
        [APR_FOR_OTHER] = "other",
        [APR_FOR_EMBEDDING] = "embedding",
        [APR_FOR_HEAD] = "head",
        [APR_FOR_ATTN_Q] = "attention q",
        [APR_FOR_ATTN_K] = "attention k",
        [APR_FOR_ATTN_V] = "attention v",
        [APR_FOR_ATTN_QKV] = "attention qkv",
        [APR_FOR_ATTN_OUT] = "attention out",
        [APR_FOR_ATTN_GATE] = "attention gate",
        [APR_FOR_FFN_GATE] = "ffn gate",
        [APR_FOR_FFN_UP] = "ffn up",
        [APR_FOR_FFN_DOWN] = "ffn down",
        [APR_FOR_ROUTER] = "router",
        [APR_FOR_SMALL] = "small",
    };
    return names[purpose];
}
