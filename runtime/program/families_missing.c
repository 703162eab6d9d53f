/* families_missing.c - published architectures without a program, and the feature that each of them needs. */
#include "runtime/program/families.h"

#include <stddef.h>
#include <string.h>

/* From the classes of transformers 5.24. */
static const struct {
    const char *architectures, *lacks; /* " a b " */
} table[] = {
    {" gpt2 opt bloom codegen gptj xglm ", "layer norm with bias and learned positions"},
    {" gpt_neox gpt-neox phi phi2 starcoder2 stablelm falcon mpt persimmon ", "layer norm with bias"},
    {" gemma3n gemma3n_text ", "alternating updates (AltUp), low-rank residuals (LAuReL) and sparse activations"},
    {" mamba falcon_mamba jamba ", "a selective scan (Mamba 1)"},
    {" kimi_linear bailing_hybrid bailing_moe_v2_5 ", "a delta rule with a decay for each key channel"},
    {" cohere command-r ", "layer norm of each head"},
    {" mimo_v2_flash mimo2 laguna step35 step3p5 ", "scaled values and a gate of each head"},
    {" apertus ", "the activation xIELU"},
    {" phimoe ", "routing by sparse mixing, and layer norm with bias"},
    {" nanochat ", "norms without weights and a squared ReLU"},
    {" deepseek_v4 minimax_m3 hy_v4 glm5_next qwen4_exp ", "hyper-connections and compressed caches"},
    {" rwkv rwkv6 rwkv7 xlstm minimax recurrent_gemma ", "its own recurrence"},
    {" bitnet ", "norms inside of its projections, and ternary weights"},
    {" bert roberta modernbert xlm-roberta t5 bart whisper clip siglip ", "an encoder: it writes no text token by token"},
};

const char *apr_family_missing_feature(const char *architecture)
{
    for (size_t i = 0; architecture != NULL && i < sizeof table / sizeof *table; i++)
        if (apr_has_word(table[i].architectures, architecture)) return table[i].lacks;
    return NULL;
}
