/* runtime/program/families.h - the families that have a program; their architectures are in families/.
 *
 * An architecture is a function apr_emit_NAME, with the name of the family's spec. It emits the layers in the order of the paper. */
#ifndef APR_RUNTIME_FAMILIES_H
#define APR_RUNTIME_FAMILIES_H

#include "runtime/program/emit.h"

#define APR_PROGRAM_LIST(X) \
    X(llama)                \
    X(mistral)              \
    X(mixtral)              \
    X(ministral3)           \
    X(qwen2)                \
    X(qwen3)                \
    X(qwen2_vl)             \
    X(qwen3_vl)             \
    X(qwen3_vl_moe)         \
    X(qwen2_moe)            \
    X(qwen3_moe)            \
    X(gpt_oss)              \
    X(qwen3_next)           \
    X(qwen3_5)              \
    X(qwen3_5_moe)          \
    X(internlm3)            \
    X(iquestcoder)          \
    X(ministral)            \
    X(arcee)                \
    X(phi3)                 \
    X(gemma)                \
    X(gemma2)               \
    X(gemma3)               \
    X(gemma4)               \
    X(gemma3n)              \
    X(granite)              \
    X(granitemoe)           \
    X(granitemoehybrid)     \
    X(nemotron_h)           \
    X(lfm2)                 \
    X(lfm2_moe)             \
    X(cohere2)              \
    X(glm4)                 \
    X(glm4_moe)             \
    X(solar_open)           \
    X(dots1)                \
    X(olmo2)                \
    X(olmo3)                \
    X(olmoe)                \
    X(mellum)               \
    X(exaone4)              \
    X(exaone_moe)           \
    X(afmoe)                \
    X(smollm3)              \
    X(seed_oss)             \
    X(ernie4_5)             \
    X(ernie4_5_moe)         \
    X(hunyuan_v1_dense)     \
    X(hunyuan_v1_moe)       \
    X(hy_v3)                \
    X(llama4)               \
    X(minimax_m2)           \
    X(deepseek_v2)          \
    X(deepseek_v3)          \
    X(glm4_moe_lite)        \
    X(mistral4)             \
    X(deepseek_v32)         \
    X(glm_moe_dsa)          \
    X(starcoder2)           \
    X(phi)                  \
    X(gpt_neox)             \
    X(gpt2)                 \
    X(opt)                  \
    X(cohere)               \
    X(mamba2)               \
    X(bamba)                \
    X(falcon_h1)            \
    X(kimi_linear)          \
    X(bailing_hybrid)

typedef void (*apr_family_fn)(apr_emitter *e);

#define X(name) void apr_emit_##name(apr_emitter *e);
APR_PROGRAM_LIST(X)
#undef X

/* The missing feature, as a phrase, that a program of that published architecture would need; NULL: the architecture is not known. */
const char *apr_family_missing_feature(const char *architecture);

/* NULL: the family has no program. */
apr_family_fn apr_family_program_of(const apr_family *family);

#endif
