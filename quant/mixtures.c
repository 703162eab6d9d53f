/* mixtures.c - the table of mixtures. */
#include "quant/mixtures.h"
#include "quant/recipe.h"

#include <strings.h>

#define KEEP APR_DTYPE_COUNT /* leave as it is */

/* ---- llama.cpp's rules. The more general one comes last ---- */

#define V(place, condition, to)                                                  \
    {                                                                            \
        APR_TENSOR_ROLE_ATTN_V, APR_PLACE_##place, APR_FOR_##condition, APR_##to \
    }
#define DOWN(place, condition, to)                                                 \
    {                                                                              \
        APR_TENSOR_ROLE_FFN_DOWN, APR_PLACE_##place, APR_FOR_##condition, APR_##to \
    }
#define OUT(condition, to)                                                     \
    {                                                                          \
        APR_TENSOR_ROLE_ATTN_OUT, APR_PLACE_ALL, APR_FOR_##condition, APR_##to \
    }
#define OTHER(role, place, condition, to)                                        \
    {                                                                            \
        APR_TENSOR_ROLE_##role, APR_PLACE_##place, APR_FOR_##condition, APR_##to \
    }
#define END                   \
    {                         \
        .to = APR_DTYPE_COUNT \
    }

#define none NULL
static const apr_mixture_rule half_in_q6_k[] = {V(EIGHTHS, ALL, Q6_K), DOWN(EIGHTHS, ALL, Q6_K), END};
static const apr_mixture_rule q4_k_m_rules[] = {V(EIGHTHS, ALL, Q6_K), DOWN(EIGHTHS, ALL, Q6_K), OUT(EIGHT_EXPERTS, Q5_K), END};
static const apr_mixture_rule q4_k_s_rules[] = {V(FIRST_FOUR, ALL, Q5_K), DOWN(FIRST_EIGHTH, ALL, Q5_K), OUT(EIGHT_EXPERTS, Q5_K), END};
static const apr_mixture_rule q3_k_s_rules[] = {OUT(EIGHT_EXPERTS, Q5_K), END};
static const apr_mixture_rule q3_k_m_rules[] = {V(FIRST_TWO, ALL, Q5_K),
                                                V(ALL, ALL, Q4_K),
                                                DOWN(FIRST_SIXTEENTH, ALL, Q5_K),
                                                DOWN(ALL, ALL, Q4_K),
                                                OUT(EIGHT_EXPERTS, Q5_K),
                                                OUT(ALL, Q4_K),
                                                END};
static const apr_mixture_rule q3_k_l_rules[] = {V(ALL, ALL, Q5_K), DOWN(ALL, ALL, Q5_K), OUT(OTHER_EXPERTS, Q5_K), END};
static const apr_mixture_rule q2_k_rules[] = {V(ALL, SHARED_HEADS, Q4_K), V(ALL, ALL, Q3_K), DOWN(ALL, ALL, Q3_K),
                                              OUT(EIGHT_EXPERTS, Q5_K),   OUT(ALL, Q3_K),    END};
static const apr_mixture_rule q2_k_s_rules[] = {V(ALL, SHARED_HEADS, Q4_K), DOWN(FIRST_EIGHTH, ALL, Q4_K), END};
static const apr_mixture_rule iq4_rules[] = {V(ALL, SHARED_HEADS, Q5_K), DOWN(FIRST_EIGHTH, NO_IMPORTANCE, Q5_K), OUT(EIGHT_EXPERTS, Q5_K),
                                             END};
static const apr_mixture_rule iq3_s_rules[] = {V(ALL, SHARED_HEADS, Q4_K), OUT(EIGHT_EXPERTS, Q5_K), END};
static const apr_mixture_rule iq3_m_rules[] = {
    V(ALL, ALL, Q4_K), DOWN(FIRST_EIGHTH, ALL, Q4_K), DOWN(EIGHTHS, EIGHT_EXPERTS, Q4_K), OUT(EIGHT_EXPERTS, Q5_K), OUT(ALL, Q4_K), END};
static const apr_mixture_rule iq3_xs_rules[] = {V(ALL, SHARED_HEADS, Q4_K),
                                                OTHER(ATTN_K, ALL, ALL, IQ3_XXS),
                                                OTHER(ATTN_Q, ALL, ALL, IQ3_XXS),
                                                OTHER(FFN_GATE, MIDDLE, ALL, IQ3_XXS),
                                                OTHER(FFN_UP, MIDDLE, ALL, IQ3_XXS),
                                                OUT(EIGHT_EXPERTS, Q5_K),
                                                END};
static const apr_mixture_rule iq3_xxs_rules[] = {V(ALL, SHARED_HEADS, Q4_K),
                                                 V(ALL, NO_IMPORTANCE, IQ3_S),
                                                 OTHER(ATTN_K, ALL, ALL, IQ2_S),
                                                 OTHER(ATTN_Q, ALL, ALL, IQ2_S),
                                                 DOWN(FIRST_EIGHTH, NO_IMPORTANCE, Q4_K),
                                                 DOWN(ALL, NO_IMPORTANCE, Q3_K),
                                                 OUT(EIGHT_EXPERTS, Q5_K),
                                                 OUT(ALL, IQ3_S),
                                                 END};
static const apr_mixture_rule iq2_s_rules[] = {
    V(ALL, SHARED_HEADS, Q4_K),     V(ALL, MANY_EXPERTS, Q4_K), V(ALL, ALL, IQ3_S), OTHER(ATTN_K, ALL, EIGHT_EXPERTS, Q4_K),
    DOWN(FIRST_EIGHTH, ALL, IQ3_S), OUT(EIGHT_EXPERTS, Q5_K),   OUT(ALL, IQ3_S),    END};
static const apr_mixture_rule iq2_xs_rules[] = {V(ALL, SHARED_HEADS, Q4_K),
                                                V(ALL, MANY_EXPERTS, Q4_K),
                                                V(ALL, ALL, Q2_K),
                                                OTHER(ATTN_K, ALL, EIGHT_EXPERTS, Q4_K),
                                                DOWN(FIRST_EIGHTH, ALL, Q2_K),
                                                OUT(EIGHT_EXPERTS, Q5_K),
                                                END};
static const apr_mixture_rule iq1_rules[] = {
    V(ALL, SHARED_HEADS, Q4_K),    V(ALL, MANY_EXPERTS, Q4_K), V(ALL, ALL, Q2_K), OTHER(ATTN_K, ALL, EIGHT_EXPERTS, Q4_K),
    DOWN(FIRST_EIGHTH, ALL, Q2_K), OUT(EIGHT_EXPERTS, Q5_K),   OUT(ALL, IQ2_XXS), END};
static const apr_mixture_rule few_bits_rules[] = {END};

/* X(name, base, embedding, head, rules, llama.cpp's file type, about) */
#define MIXTURE_LIST(X)                                                                                                            \
    X("f32", APR_F32, APR_F32, APR_F32, none, 0, "float32, everything")                                                            \
    X("f16", APR_F16, APR_F16, APR_F16, none, 1, "float16 matrices")                                                               \
    X("bf16", APR_BF16, APR_BF16, APR_BF16, none, 32, "bfloat16 matrices")                                                         \
    X("q8_0", APR_Q8_0, APR_Q8_0, APR_Q8_0, none, 7, "8.5 bits: hard to tell from the original")                                   \
    X("q6_k", APR_Q6_K, APR_Q6_K, APR_Q6_K, none, 18, "6.6 bits")                                                                  \
    X("q5_k", APR_Q5_K, APR_Q5_K, APR_Q6_K, none, 16, "5.5 bits, head in q6_k")                                                    \
    X("q5_k_m", APR_Q5_K, APR_Q5_K, APR_Q6_K, half_in_q6_k, 17, "q5_k with half of V and down in q6_k")                            \
    X("q4_k", APR_Q4_K, APR_Q4_K, APR_Q6_K, none, 14, "4.5 bits, head in q6_k")                                                    \
    X("q4_k_s", APR_Q4_K, APR_Q4_K, APR_Q6_K, q4_k_s_rules, 14, "q4_k with the first V and down in q5_k")                          \
    X("q4_k_m", APR_Q4_K, APR_Q4_K, APR_Q6_K, q4_k_m_rules, 15, "q4_k with half of V and down in q6_k")                            \
    X("q3_k", APR_Q3_K, APR_Q3_K, APR_Q6_K, none, 11, "3.4 bits, head in q6_k")                                                    \
    X("q3_k_s", APR_Q3_K, APR_Q3_K, APR_Q6_K, q3_k_s_rules, 11, "q3_k, with more bits only in models of 70B or eight experts")     \
    X("q3_k_m", APR_Q3_K, APR_Q3_K, APR_Q6_K, q3_k_m_rules, 12, "q3_k with V, attention out and down in q4_k, the first in q5_k")  \
    X("q3_k_l", APR_Q3_K, APR_Q3_K, APR_Q6_K, q3_k_l_rules, 13, "q3_k with V, attention out and down in q5_k")                     \
    X("q2_k", APR_Q2_K, APR_Q2_K, APR_Q6_K, q2_k_rules, 10, "2.6 bits, with V, attention out and down in q3_k, head in q6_k")      \
    X("q2_k_s", APR_Q2_K, APR_Q2_K, APR_Q6_K, q2_k_s_rules, 21, "2.6 bits, with the first down in q4_k, head in q6_k")             \
    X("iq4_nl", APR_IQ4_NL, APR_IQ4_NL, APR_Q6_K, iq4_rules, 25, "4.5 bits, uneven levels, blocks of 32, head in q6_k")            \
    X("iq4_xs", APR_IQ4_XS, APR_IQ4_XS, APR_Q6_K, iq4_rules, 30, "4.25 bits, uneven levels, head in q6_k")                         \
    X("iq3_m", APR_IQ3_S, APR_IQ3_S, APR_Q6_K, iq3_m_rules, 27, "3.4 bits, with V, attention out and the first down in q4_k")      \
    X("iq3_s", APR_IQ3_S, APR_IQ3_S, APR_Q6_K, iq3_s_rules, 26, "3.4 bits, a codebook, head in q6_k")                              \
    X("iq3_xs", APR_IQ3_S, APR_IQ3_S, APR_Q6_K, iq3_xs_rules, 22, "iq3_s with Q, K and half of gate and up in iq3_xxs")            \
    X("iq3_xxs", APR_IQ3_XXS, APR_IQ3_S, APR_Q5_K, iq3_xxs_rules, 23, "3.06 bits, a codebook, head in q5_k")                       \
    X("iq2_m", APR_IQ2_S, APR_IQ3_S, APR_Q5_K, iq2_s_rules, 29, "2.56 bits, a codebook, with attention out in iq3_s")              \
    X("iq2_s", APR_IQ2_XS, APR_IQ3_S, APR_Q5_K, iq2_s_rules, 28, "iq2_xs with attention out and the first down in iq3_s")          \
    X("iq2_xs", APR_IQ2_XS, APR_Q2_K, APR_Q5_K, iq2_xs_rules, 20, "2.31 bits, a codebook")                                         \
    X("iq2_xxs", APR_IQ2_XXS, APR_Q2_K, APR_Q5_K, iq2_xs_rules, 19, "2.06 bits, a codebook")                                       \
    X("iq1_m", APR_IQ1_M, APR_Q2_K, APR_Q5_K, iq1_rules, 31, "1.75 bits, a ternary codebook")                                      \
    X("iq1_s", APR_IQ1_S, APR_Q2_K, APR_Q5_K, iq1_rules, 24, "1.56 bits, a ternary codebook")                                      \
    X("q5_0", APR_Q5_0, APR_Q5_0, APR_Q6_K, none, 8, "5.5 bits, plain blocks of 32, head in q6_k")                                 \
    X("q5_1", APR_Q5_1, APR_Q5_1, APR_Q6_K, none, 9, "6 bits, blocks of 32 with a minimum, head in q6_k")                          \
    X("q4_1", APR_Q4_1, APR_Q4_1, APR_Q6_K, none, 3, "5 bits, blocks of 32 with a minimum, head in q6_k")                          \
    X("q4_0", APR_Q4_0, APR_Q4_0, APR_Q6_K, none, 2, "4.5 bits, plain blocks of 32, head in q6_k")                                 \
    X("q2_0", APR_Q2_0, APR_Q4_K, APR_Q6_K, few_bits_rules, 41,                                                                    \
      "2.25 bits, four levels, for models trained so; embedding in q4_k, head in q6_k")                                            \
    X("tq2_0", APR_TQ2_0, APR_Q4_K, APR_Q6_K, few_bits_rules, 37,                                                                  \
      "2.06 bits, three levels, for ternary models; embedding in q4_k, head in q6_k")                                              \
    X("tq1_0", APR_TQ1_0, APR_Q4_K, APR_Q6_K, few_bits_rules, 36,                                                                  \
      "1.69 bits, three levels, for ternary models; embedding in q4_k, head in q6_k")                                              \
    X("q1_0", APR_Q1_0, APR_Q1_0, APR_Q6_K, few_bits_rules, 40, "1.125 bits, two levels, for models trained so; head in q6_k")     \
    X("mxfp4", APR_MXFP4, APR_Q8_0, APR_Q8_0, none, 38, "4.25 bits: OCP microscaling FP4; embedding and head in q8_0")             \
    X("nvfp4", APR_NVFP4, APR_Q8_0, APR_Q8_0, none, 39, "4.5 bits: FP4 with an FP8 scale for each 16; embedding and head in q8_0") \
    X("fp8", APR_F8_E4M3, KEEP, KEEP, none, -1, "FP8 E4M3 with a scale for each row; embedding and head kept")

#define X(name, base, embedding, head, rules, file_type, about) {name, about, base, embedding, head, rules, file_type},
static const apr_mixture mixtures[] = {MIXTURE_LIST(X)};
#undef X
#undef none

#define X(name, base, embedding, head, rules, file_type, about) {name, about},
const apr_mixture_name apr_mixture_names[] = {MIXTURE_LIST(X){0}};
#undef X

const apr_mixture *apr_mixture_find(const char *name)
{
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++)
        if (strcasecmp(mixtures[i].name, name) == 0) return &mixtures[i];
    return NULL;
}
