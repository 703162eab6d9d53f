/* prompt_args.h - products of many tokens with what stands in front of them and behind: what a step is given, and of which shapes.
 *
 *     inputs:  sum = residual + addend, normed          where products end a block of a layer, what they leave is the next one's addend
 *              a value normed, or as it is
 *              what the step before left: a gated unit
 *     then     up to three products of them
 *     ending:  STORE    outputs as floats
 *              LEAVE    outputs as floats that still lack the factors of their rows: the next step's addend
 *              UNIT     gate and up, as FP16 or floats, become a gated unit, which is the next step's inputs
 *              TURN     heads of q and k are normed, where they are, and rotated; k and v go into the cache, and q alone comes out
 *
 * Numbers are those of the operations by themselves, bit for bit, but for gate and up as FP16: what is saved is that activations go to
 * memory and come back. What is made for one reader within a step, or for the next step, is never made as floats: normed values, units,
 * turned keys. What a turn or a unit leaves in parts[].out is not said: q, k and v may be one product, whose outputs stand side by side in
 * the workspace, and whose sums cuBLAS may add in another order than those of three.
 *
 * Gate and up as FP16 are their sums, float32, times a power of two, rounded to 11 bits once. Inputs are 2^14 at most (ops/halves.cuh), so
 * that outputs are at most 2^14 times what the magnitudes of a row of weights add up to. The power brings that bound to between 2^14 and
 * 2^15: nothing overflows, whatever the inputs are, and however sums are rounded. Nor is much lost below: where a token's largest output
 * is 2^-14 of the bound (of random numbers it is 2^-6), numbers of 2^-14 of that output have their 11 bits still. What rows add up to
 * is found in the first step with a matrix, and kept where row_sums says. */
#ifndef APR_KERNELS_CUDA_PROMPT_ARGS_H
#define APR_KERNELS_CUDA_PROMPT_ARGS_H

#include "kernels/cuda/flow_args.h"

#include <math.h>

enum {
    APR_PROMPT_PARTS = 3,        /* products of the same inputs */
    APR_PROMPT_TOKENS = 129,     /* at least: of fewer, products have inputs of two parts */
    APR_PROMPT_NORM_WIDE = 8192, /* numbers of a row that is summed up and normed, at most */
};

typedef enum { APR_PROMPT_STORE, APR_PROMPT_LEAVE, APR_PROMPT_UNIT, APR_PROMPT_TURN } apr_prompt_ending;

typedef struct apr_prompt_args {
    bool has_sum;     /* with a norm */
    bool lacks_scale; /* the addend was left by the step before, and still lacks the factors of its rows */
    const float *residual, *addend;
    float *sum; /* may be residual or addend */
    bool has_norm;
    apr_norm_args norm; /* of whole rows; of a sum: norm.x is not read. norm.out is not written */
    bool is_left;       /* the step before was a unit, and its output is what is multiplied */
    int n_parts;
    apr_linear_args parts[APR_PROMPT_PARTS]; /* of one x and workspace. UNIT: gate, up; TURN: q, k, v */
    apr_prompt_ending ending;
    apr_glu_args unit;  /* out is not written */
    float *row_sums;    /* UNIT: [2] the host's memory, of gate's and up's weights as long as these are what they are; it begins with zeros,
                         * and where a step finds one, that is waited for. NULL: gate and up leave floats */
    apr_turn_args turn; /* store.k is not read; n_tokens as all */
} apr_prompt_args;

/* Are inputs of products made FP16 with one power of two for all tokens, if that loses nothing? */
static inline bool apr_prompt_together(int64_t n_tokens, int64_t n_in, int64_t n_out, bool has_bias)
{
    return n_tokens >= APR_PROMPT_TOKENS && !has_bias && n_out >= 2 * n_in && n_in % 8 == 0;
}

/* By which power of two, 2^*exponent, are sums multiplied to be FP16? False: weights are infinite or no numbers, or rows so long that
 * sums, those of weights or of products, might be off by more than an eighth; then they remain floats. */
static inline bool apr_prompt_halves(float row_sum, int64_t n_in, int *exponent)
{
    if (!isfinite(row_sum) || n_in > 1 << 20) return false;
    *exponent = row_sum < 0x1p-24f ? 24 : -ilogbf(row_sum);
    return true;
}

static inline bool apr_prompt_norms(apr_norm_kind kind, int64_t width, int64_t chunk, int64_t n_weight)
{
    return kind == APR_NORM_RMS && chunk == width && n_weight == width && width % 8 == 0 && width <= APR_PROMPT_NORM_WIDE;
}

static inline bool apr_prompt_units(int64_t width) { return width % 8 == 0 && width <= INT32_MAX / 2; }

#endif
