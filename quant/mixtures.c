/* mixtures.c - the table of mixtures. */
#include "quant/mixtures.h"
#include "quant/recipe.h"

#include <strings.h>

#define KEEP APR_DTYPE_COUNT /* leave as it is */

/* X(name, base, embedding, head, more, more_v, more_down, llama.cpp's file type, about) */
#define MIXTURE_LIST(X)                                                                                                            \
    X("f32", APR_F32, APR_F32, APR_F32, KEEP, NONE, NONE, 0, "float32, everything")                                                \
    X("f16", APR_F16, APR_F16, APR_F16, KEEP, NONE, NONE, 1, "float16 matrices")                                                   \
    X("bf16", APR_BF16, APR_BF16, APR_BF16, KEEP, NONE, NONE, 32, "bfloat16 matrices")                                             \
    X("q8_0", APR_Q8_0, APR_Q8_0, APR_Q8_0, KEEP, NONE, NONE, 7, "8.5 bits: hard to tell from the original")                       \
    X("q6_k", APR_Q6_K, APR_Q6_K, APR_Q6_K, KEEP, NONE, NONE, 18, "6.6 bits")                                                      \
    X("q5_k", APR_Q5_K, APR_Q5_K, APR_Q6_K, KEEP, NONE, NONE, 16, "5.5 bits, head in q6_k")                                        \
    X("q5_k_m", APR_Q5_K, APR_Q5_K, APR_Q6_K, APR_Q6_K, EIGHTHS, EIGHTHS, 17, "q5_k with half of V and down in q6_k")              \
    X("q4_k", APR_Q4_K, APR_Q4_K, APR_Q6_K, KEEP, NONE, NONE, 14, "4.5 bits, head in q6_k")                                        \
    X("q4_k_s", APR_Q4_K, APR_Q4_K, APR_Q6_K, APR_Q5_K, FIRST_FOUR, FIRST_EIGHTH, 14, "q4_k with the first V and down in q5_k")    \
    X("q4_k_m", APR_Q4_K, APR_Q4_K, APR_Q6_K, APR_Q6_K, EIGHTHS, EIGHTHS, 15, "q4_k with half of V and down in q6_k")              \
    X("q5_0", APR_Q5_0, APR_Q5_0, APR_Q6_K, KEEP, NONE, NONE, 8, "5.5 bits, plain blocks of 32, head in q6_k")                     \
    X("q5_1", APR_Q5_1, APR_Q5_1, APR_Q6_K, KEEP, NONE, NONE, 9, "6 bits, blocks of 32 with a minimum, head in q6_k")              \
    X("q4_1", APR_Q4_1, APR_Q4_1, APR_Q6_K, KEEP, NONE, NONE, 3, "5 bits, blocks of 32 with a minimum, head in q6_k")              \
    X("q4_0", APR_Q4_0, APR_Q4_0, APR_Q6_K, KEEP, NONE, NONE, 2, "4.5 bits, plain blocks of 32, head in q6_k")                     \
    X("mxfp4", APR_MXFP4, APR_Q8_0, APR_Q8_0, KEEP, NONE, NONE, 38, "4.25 bits: OCP microscaling FP4; embedding and head in q8_0") \
    X("fp8", APR_F8_E4M3, KEEP, KEEP, KEEP, NONE, NONE, -1, "FP8 E4M3 with a scale for each row; embedding and head kept")

#define X(name, base, embedding, head, more, v, down, file_type, about) \
    {name, about, base, embedding, head, more, APR_MORE_##v, APR_MORE_##down, file_type},
static const apr_mixture mixtures[] = {MIXTURE_LIST(X)};
#undef X

#define X(name, base, embedding, head, more, v, down, file_type, about) {name, about},
const apr_mixture_name apr_mixture_names[] = {MIXTURE_LIST(X){0}};
#undef X

const apr_mixture *apr_mixture_find(const char *name)
{
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++)
        if (strcasecmp(mixtures[i].name, name) == 0) return &mixtures[i];
    return NULL;
}
