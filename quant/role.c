/* role.c - finds a tensor's role by the family's spec, else by a table of name suffixes for Hugging Face's and ggml's names. */
#include "quant/role.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The first rule whose text is a suffix of the name (without ".weight") decides. */
#define SUFFIX(text) text, sizeof text - 1
static const struct {
    const char *suffix;
    size_t n;
    apr_tensor_role role;
} rules[] = {
    {SUFFIX("embed_tokens"), APR_TENSOR_ROLE_EMBEDDING},
    {SUFFIX("token_embd"), APR_TENSOR_ROLE_EMBEDDING},
    {SUFFIX("lm_head"), APR_TENSOR_ROLE_HEAD},
    {SUFFIX("output"), APR_TENSOR_ROLE_HEAD}, /* whole name only: see below */
    {SUFFIX(".q_proj"), APR_TENSOR_ROLE_ATTN_Q},
    {SUFFIX(".attn_q"), APR_TENSOR_ROLE_ATTN_Q},
    {SUFFIX(".k_proj"), APR_TENSOR_ROLE_ATTN_K},
    {SUFFIX(".attn_k"), APR_TENSOR_ROLE_ATTN_K},
    {SUFFIX(".v_proj"), APR_TENSOR_ROLE_ATTN_V},
    {SUFFIX(".attn_v"), APR_TENSOR_ROLE_ATTN_V},
    {SUFFIX(".qkv_proj"), APR_TENSOR_ROLE_ATTN_QKV},
    {SUFFIX(".in_proj_qkv"), APR_TENSOR_ROLE_ATTN_QKV},
    {SUFFIX(".in_proj_qkvz"), APR_TENSOR_ROLE_ATTN_QKV},
    {SUFFIX(".attn_qkv"), APR_TENSOR_ROLE_ATTN_QKV},
    {SUFFIX(".o_proj"), APR_TENSOR_ROLE_ATTN_OUT},
    {SUFFIX(".linear_attn.out_proj"), APR_TENSOR_ROLE_ATTN_OUT},
    {SUFFIX(".attn_output"), APR_TENSOR_ROLE_ATTN_OUT},
    {SUFFIX(".ssm_out"), APR_TENSOR_ROLE_ATTN_OUT},
    {SUFFIX(".in_proj_z"), APR_TENSOR_ROLE_ATTN_GATE},
    {SUFFIX(".attn_gate"), APR_TENSOR_ROLE_ATTN_GATE},
    {SUFFIX(".gate_up_proj"), APR_TENSOR_ROLE_FFN_UP},
    {SUFFIX(".self_attn.gate_proj"), APR_TENSOR_ROLE_ATTN_GATE},
    {SUFFIX(".gate_proj"), APR_TENSOR_ROLE_FFN_GATE},
    {SUFFIX(".up_proj"), APR_TENSOR_ROLE_FFN_UP},
    {SUFFIX(".down_proj"), APR_TENSOR_ROLE_FFN_DOWN},
    {SUFFIX(".ffn_gate"), APR_TENSOR_ROLE_FFN_GATE},
    {SUFFIX(".ffn_up"), APR_TENSOR_ROLE_FFN_UP},
    {SUFFIX(".ffn_down"), APR_TENSOR_ROLE_FFN_DOWN},
    {SUFFIX(".ffn_gate_exps"), APR_TENSOR_ROLE_FFN_GATE},
    {SUFFIX(".ffn_up_exps"), APR_TENSOR_ROLE_FFN_UP},
    {SUFFIX(".ffn_gate_up_exps"), APR_TENSOR_ROLE_FFN_UP},
    {SUFFIX(".ffn_down_exps"), APR_TENSOR_ROLE_FFN_DOWN},
    {SUFFIX(".ffn_gate_shexp"), APR_TENSOR_ROLE_FFN_GATE},
    {SUFFIX(".ffn_up_shexp"), APR_TENSOR_ROLE_FFN_UP},
    {SUFFIX(".ffn_down_shexp"), APR_TENSOR_ROLE_FFN_DOWN},
    {SUFFIX(".mlp.gate"), APR_TENSOR_ROLE_ROUTER},
    {SUFFIX(".mlp.router"), APR_TENSOR_ROLE_ROUTER},
    {SUFFIX(".block_sparse_moe.gate"), APR_TENSOR_ROLE_ROUTER},
    {SUFFIX(".ffn_gate_inp"), APR_TENSOR_ROLE_ROUTER},
    {SUFFIX(".shared_expert_gate"), APR_TENSOR_ROLE_ROUTER},
    {SUFFIX(".ffn_gate_inp_shexp"), APR_TENSOR_ROLE_ROUTER},
    {SUFFIX("norm"), APR_TENSOR_ROLE_SMALL},
    {SUFFIX("layernorm"), APR_TENSOR_ROLE_SMALL},
    {SUFFIX("conv1d"), APR_TENSOR_ROLE_SMALL},
    {SUFFIX("rope_freqs"), APR_TENSOR_ROLE_SMALL},
    {SUFFIX("sinks"), APR_TENSOR_ROLE_SMALL},
};

/* The number after "layers.", "blk." or "layer.", or -1. */
static int64_t layer_of(const char *name)
{
    static const char *const marks[] = {"layers.", "blk.", "layer."};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *const at = strstr(name, marks[i]);
        if (at != NULL && isdigit((unsigned char)at[strlen(marks[i])])) return strtoll(at + strlen(marks[i]), NULL, 10);
    }
    return -1;
}

apr_tensor_role apr_tensor_role_of_suffix(const char *name)
{
    size_t n = strlen(name);

    if (n > 7 && strcmp(name + n - 7, ".weight") == 0) n -= 7;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const size_t m = rules[i].n;
        if (n < m || name[n - 1] != rules[i].suffix[m - 1] || memcmp(name + n - m, rules[i].suffix, m) != 0) continue;
        if (strcmp(rules[i].suffix, "output") == 0 && n != m) continue;
        return rules[i].role;
    }
    return APR_TENSOR_ROLE_OTHER;
}

apr_tensor_role_of apr_find_tensor_role(const apr_family *family, const apr_tensor *tensor)
{
    const apr_tensor_rule *const rule = family != NULL ? apr_family_rule(family, tensor->name) : NULL;
    const apr_tensor_role role = rule != NULL ? rule->role : apr_tensor_role_of_suffix(tensor->name);
    return (apr_tensor_role_of){tensor->rank < 2 ? APR_TENSOR_ROLE_SMALL : role, layer_of(tensor->name)};
}

const char *apr_tensor_role_name(apr_tensor_role role)
{
    static const char *const names[APR_TENSOR_ROLE_COUNT] = {
        [APR_TENSOR_ROLE_OTHER] = "other",
        [APR_TENSOR_ROLE_EMBEDDING] = "embedding",
        [APR_TENSOR_ROLE_HEAD] = "head",
        [APR_TENSOR_ROLE_ATTN_Q] = "attention q",
        [APR_TENSOR_ROLE_ATTN_K] = "attention k",
        [APR_TENSOR_ROLE_ATTN_V] = "attention v",
        [APR_TENSOR_ROLE_ATTN_QKV] = "attention qkv",
        [APR_TENSOR_ROLE_ATTN_OUT] = "attention out",
        [APR_TENSOR_ROLE_ATTN_GATE] = "attention gate",
        [APR_TENSOR_ROLE_FFN_GATE] = "ffn gate",
        [APR_TENSOR_ROLE_FFN_UP] = "ffn up",
        [APR_TENSOR_ROLE_FFN_DOWN] = "ffn down",
        [APR_TENSOR_ROLE_MATRIX] = "matrix",
        [APR_TENSOR_ROLE_DECAY] = "decay",
        [APR_TENSOR_ROLE_ROUTER] = "router",
        [APR_TENSOR_ROLE_KEPT] = "kept",
        [APR_TENSOR_ROLE_SMALL] = "small",
    };
    return names[role];
}
