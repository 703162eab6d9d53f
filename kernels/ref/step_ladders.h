/* step_ladders.h - parameters of step_search.h, and what needs no search: the same for the reference and GPUs. */
#ifndef APR_KERNELS_REF_STEP_LADDERS_H
#define APR_KERNELS_REF_STEP_LADDERS_H

#include "kernels/ref/codecs.h"

typedef struct apr_step_search {
    float first, ratio; /* trial steps are the largest magnitude over first, first * ratio, first * ratio^2, ... */
    int trials;
    float margin; /* a later trial must lower the error by more than margin times what the best one did */
    int polishes;
    float longer; /* -1, 1: negative or positive levels reach further, so steps of both signs are tried; 0: levels are symmetric */
} apr_step_search;

APR_HOST_DEVICE static inline float apr_inverse_of(float step) { return step != 0.0f ? 1.0f / step : 0.0f; }

/* ---- super-blocks: step = d * scale, with scales of 6 bits; both may be negative ---- */

#define APR_LEAST_SCALE -32.0f
#define APR_MOST_SCALE  31.0f
enum { APR_MOST_SUBS = 16, APR_SCALE_ROUNDS = 2 }; /* rounds: how often d is fitted to the levels, and the scales chosen again */

typedef struct apr_scale_search {
    apr_step_search step;
    int subs, sub_elems; /* sub-blocks of a block, values of a sub-block */
} apr_scale_search;

/* To FP16; a non-zero value stays non-zero, and a too large one becomes the largest. */
APR_HOST_DEVICE static inline uint16_t apr_stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(apr_clamp(x, -APR_F16_MAX, APR_F16_MAX));
    return (half & 0x7fff) == 0 && x != 0.0f ? (uint16_t)(half | 1) : half;
}

/* The levels of IQ4_NL and IQ4_XS. */
#define APR_IQ4_LEVELS -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* NVFP4: scales tried below and above the one that gives the largest magnitude the code 6; the largest scale, 448. */
enum { APR_NVFP4_BELOW = 6, APR_NVFP4_ABOVE = 9, APR_NVFP4_LAST = 0x7e };

/* ---- the searches of each type. Ladders are as fine as still helps: with twice the trials the error on Gaussian rows and on Student's t
 * with 5 degrees of freedom falls by less than 1 in 1,000 (Q3_K by importance: 5 in 1,000). Ladders for one scale are finer: their
 * blocks are within 1.0005 of the best of 4,096 scales. ---- */

/* clang-format off */
#define APR_Q2_0_SEARCH {.first = 11.3f, .ratio = 1.0f / 1.04f, .trials = 72, .margin = 1.0f, .polishes = 1, .longer = 1.0f}
#define APR_TERNARY_SEARCH {.first = 19.4f, .ratio = 1.0f / 1.05f, .trials = 64, .margin = 1.0f, .polishes = 2}
#define APR_IQ4_NL_SEARCH {.first = 208.0f, .ratio = 1.0f / 1.02f, .trials = 64, .margin = 1.0f, .polishes = 1, .longer = -1.0f}
#define APR_IQ4_XS_SEARCH {.step = {.first = 196.0f, .ratio = 1.0f / 1.03f, .trials = 36, .margin = 1.00002f, .polishes = 1, .longer = -1.0f}, .subs = 8, .sub_elems = 32}
#define APR_Q3_K_SEARCH {.step = {.first = 4.6f, .ratio = 1.0f / 1.05f, .trials = 16, .margin = 1.00002f, .polishes = 1, .longer = -1.0f}, .subs = 16, .sub_elems = 16}
/* clang-format on */

#endif
