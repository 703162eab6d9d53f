/* prompt_args.h - fused operations around the products of many tokens: what one call computes, and for which shapes.
 *
 *     inputs:   sum = residual + addend, then its norm    the addend is the previous call's output (UNSCALED)
 *               a value normed, or as it is
 *               the GLU of the previous call
 *     then      up to three products of these inputs
 *     epilogue: STORE     outputs as float32
 *               UNSCALED  outputs as float32, not yet multiplied by their rows' scales: the next call's addend
 *               GLU       gate and up, as FP16 or float32, become a GLU, which is the next call's input
 *               QKV       QKV epilogue: q and k heads are normed (where they have norms) and rotated, k and v go to the cache
 *
 * The numbers are those of the separate operations, bit for bit, except gate and up as FP16. What is saved is traffic to memory. A value
 * with a single reader, within a call or in the next one, is never written as float32: normed values, GLU outputs, rotated keys. The
 * contents of parts[].out after QKV or GLU are unspecified. q, k and v may be one product, whose outputs are next to each other in the
 * workspace; cuBLAS may add its sums in another order than those of three products.
 *
 * Gate and up as FP16 are their float32 sums times a power of two, rounded once to 11 bits. Inputs are at most 2^14 (gemm/activations_f16.cuh), so
 * outputs are at most 2^14 times the largest sum of magnitudes of a row of weights. The power of two brings that bound to between 2^14 and
 * 2^15: nothing overflows, whatever the inputs and however sums are rounded. Little is lost at the lower end: where a token's largest
 * output is 2^-14 of the bound (2^-6 for random numbers), outputs of 2^-14 of that still have 11 bits. The largest row sum is computed in
 * the first call with a matrix, and kept in row_sums. */
#ifndef APR_KERNELS_CUDA_PROMPT_ARGS_H
#define APR_KERNELS_CUDA_PROMPT_ARGS_H

#include "kernels/cuda/decode_gemv_args.h"

#include <math.h>

enum {
    APR_PROMPT_PARTS = 3,             /* maximum products of the same inputs */
    APR_PROMPT_MIN_TOKENS = 129,      /* minimum: with fewer tokens, products take their inputs in two FP16 parts */
    APR_PROMPT_MAX_NORM_WIDTH = 8192, /* maximum width of a row that is summed and normed */
};

typedef enum { APR_PROMPT_STORE, APR_PROMPT_UNSCALED, APR_PROMPT_GLU, APR_PROMPT_QKV } apr_prompt_epilogue;

typedef struct apr_prompt_args {
    bool has_sum;            /* only with a norm */
    bool addend_is_unscaled; /* the addend is the previous call's UNSCALED output, not yet multiplied by its rows' scales */
    const float *residual, *addend;
    float *sum; /* may be residual or addend */
    bool has_norm;
    apr_norm_args norm; /* of whole rows; with a sum norm.x is not read. norm.out is not written */
    bool input_is_glu;  /* the previous call was GLU, and its output is the input of the products */
    int n_parts;
    apr_linear_args parts[APR_PROMPT_PARTS]; /* all with the same x and workspace. GLU: gate, up; QKV: q, k, v */
    apr_prompt_epilogue epilogue;
    apr_glu_args glu; /* out is not written */
    float *row_sums;  /* GLU: [2] host memory, of gate's and up's weights, kept for the life of these weights. It begins with zeros; a
                         * call that finds a zero computes the sum and waits for it. NULL: gate and up are written as float32 */
    apr_qkv_epilogue_args qkv; /* store.k is not read; n_tokens is the call's */
} apr_prompt_args;

/* Whether all tokens' FP16 inputs share one power of two, if that loses nothing. */
static inline bool apr_prompt_shares_scale(int64_t n_tokens, int64_t n_in, int64_t n_out, bool has_bias)
{
    return n_tokens >= APR_PROMPT_MIN_TOKENS && !has_bias && n_out >= 2 * n_in && n_in % 8 == 0;
}

/* The power of two, 2^*exponent, by which sums are multiplied to become FP16. False: they stay float32, because a weight is infinite or
 * NaN, or rows are so long that sums may be off by more than an eighth. */
static inline bool apr_prompt_f16_exponent(float row_sum, int64_t n_in, int *exponent)
{
    if (!isfinite(row_sum) || n_in > 1 << 20) return false;
    *exponent = row_sum < 0x1p-24f ? 24 : -ilogbf(row_sum);
    return true;
}

static inline bool apr_prompt_has_norm(apr_norm_kind kind, int64_t width, int64_t chunk, int64_t n_weight)
{
    return kind == APR_NORM_RMS && chunk == width && n_weight == width && width % 8 == 0 && width <= APR_PROMPT_MAX_NORM_WIDTH;
}

static inline bool apr_prompt_has_glu(int64_t width) { return width % 8 == 0 && width <= INT32_MAX / 2; }

#endif
