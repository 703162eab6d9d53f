/* step_search.h - the search for the scales of types whose values are step * level, with few levels and no minimum.
 *
 * Trial steps form a geometric ladder, from the smallest to the largest. Each gives every value its nearest level c. For these levels
 * cx / cc is the best step, with cx = sum of w * c * x and cc = sum of w * c * c: it lowers the squared error by cx^2 / cc. The best step
 * of all trials is polished: new levels for the fitted step, and a new fit. Of equal results the first one tried is kept. If the levels
 * are not symmetric, the same steps are tried with both signs.
 *
 * For a super-block the best steps of its sub-blocks are made first. There a larger step must be better by a margin: sub-blocks whose
 * values are nearly equal have many good steps, and a large d makes the scales of all sub-blocks coarser. d is the largest of them over
 * -32, rounded to FP16. Each sub-block takes the whole scale with the least error. Then d is fitted to all levels and the scales are
 * chosen again, while it helps.
 *
 * Every sum is made in 8 lanes (codecs.h), so that SIMD versions and GPUs can make the same. */
#ifndef APR_KERNELS_REF_STEP_SEARCH_H
#define APR_KERNELS_REF_STEP_SEARCH_H

#include "kernels/ref/step_ladders.h"

/* The level that is nearest to v. */
typedef float (*apr_level_fn)(float v);

typedef struct apr_step_sums {
    float cc, cx;
} apr_step_sums;

/* The sums for the levels that a step gives. n is a multiple of 8. */
static inline apr_step_sums apr_step_fit(const float *restrict x, const float *restrict w, int n, float step, apr_level_fn level)
{
    const float inverse = apr_inverse_of(step);
    float cc[8] = {0.0f}, cx[8] = {0.0f};

    for (int j = 0; j < n; j += 8)
        for (int l = 0; l < 8; l++) {
            const float c = level(x[j + l] * inverse), wc = w[j + l] * c;
            cc[l] += wc * c;
            cx[l] += wc * x[j + l];
        }
    return (apr_step_sums){apr_sum8(cc), apr_sum8(cx)};
}

/* The weighted squared error of decoded values. */
static inline float apr_step_error(const float *restrict x, const float *restrict w, int n, float step, apr_level_fn level)
{
    const float inverse = apr_inverse_of(step);
    float ee[8] = {0.0f};

    for (int j = 0; j < n; j += 8)
        for (int l = 0; l < 8; l++) {
            const float e = step * level(x[j + l] * inverse) - x[j + l];
            ee[l] += w[j + l] * e * e;
        }
    return apr_sum8(ee);
}

/* Keeps the fit to a trial's levels if it lowers the error by more than margin * gain. */
static inline void apr_step_try(const float *restrict x, const float *restrict w, int n, float step, apr_level_fn level, float margin,
                                float *gain, float *best)
{
    const apr_step_sums s = apr_step_fit(x, w, n, step, level);
    const float fit = s.cc > 0.0f ? s.cx / s.cc : 0.0f, won = s.cx * fit;
    if (won > margin * *gain) *gain = won, *best = fit;
}

/* The best step of n values. 0: they are 0, or too close to it for FP16. Of the two signs the first one tried gives the value with the
 * largest magnitude, the first of equals, a level of the longer end. */
static inline float apr_search_step(const float *restrict x, const float *restrict w, int n, apr_step_search search, apr_level_fn level)
{
    float amax = 0.0f, extreme = 0.0f, gain = 0.0f, best = 0.0f, divisor = search.first;

    for (int j = 0; j < n; j++) {
        const float magnitude = x[j] < 0.0f ? -x[j] : x[j];
        if (magnitude > amax) amax = magnitude, extreme = x[j];
    }
    if (!(amax > 0x1p-40f)) return 0.0f;
    if (search.longer < 0.0f) extreme = -extreme;
    for (int t = 0; t < search.trials; t++, divisor *= search.ratio) {
        const float step = extreme / divisor;
        apr_step_try(x, w, n, step, level, search.margin, &gain, &best);
        if (search.longer != 0.0f) apr_step_try(x, w, n, -step, level, search.margin, &gain, &best);
    }
    for (int p = 0; p < search.polishes; p++) apr_step_try(x, w, n, best, level, search.margin, &gain, &best);
    return best;
}

/* The FP16 number nearest to a step, or a neighbour of it: the one with the least error. */
static inline uint16_t apr_search_f16_step(const float *restrict x, const float *restrict w, int n, float step, apr_level_fn level)
{
    const uint16_t half = apr_f32_to_f16(apr_clamp(step, -APR_F16_MAX, APR_F16_MAX)), magnitude = half & 0x7fff;
    uint16_t best = half;
    float least = apr_step_error(x, w, n, apr_f16_to_f32(half), level);

    for (int side = -1; side <= 1; side += 2) {
        const int next = magnitude + side;
        if (next < 0 || next > 0x7bff) continue;
        const uint16_t other = (uint16_t)((half & 0x8000) | next);
        const float error = apr_step_error(x, w, n, apr_f16_to_f32(other), level);
        if (error < least) least = error, best = other;
    }
    return best;
}

/* ---- super-blocks: step = d * scale, with scales of 6 bits; both may be negative ---- */

typedef struct apr_block_scales {
    uint16_t d; /* FP16 */
    float scale[APR_MOST_SUBS];
    float error;
} apr_block_scales;

/* Chooses a sub-block's scale for a given d: the one next to the ideal step, or a neighbour. Returns its error. */
static inline float apr_choose_scale(const float *restrict x, const float *restrict w, int n, float d, apr_level_fn level, float ideal,
                                     float *scale)
{
    const float middle = apr_clamp(apr_round_even(ideal * apr_inverse_of(d)), APR_LEAST_SCALE, APR_MOST_SCALE);
    float least = -1.0f;

    for (float t = middle - 1.0f; t <= middle + 1.0f; t += 1.0f) {
        if (t < APR_LEAST_SCALE || t > APR_MOST_SCALE) continue;
        const float error = apr_step_error(x, w, n, d * t, level);
        if (least < 0.0f || error < least) least = error, *scale = t;
    }
    return least;
}

/* Chooses all scales for now->d. ideal: the best steps of the sub-blocks. */
static inline void apr_choose_scales(const float *restrict x, const float *restrict w, const apr_scale_search *search, apr_level_fn level,
                                     const float *ideal, apr_block_scales *now)
{
    const float d = apr_f16_to_f32(now->d);
    now->error = 0.0f;
    for (int sub = 0; sub < search->subs; sub++) {
        const int at = sub * search->sub_elems;
        now->error += apr_choose_scale(x + at, w + at, search->sub_elems, d, level, ideal[sub], &now->scale[sub]);
    }
}

/* The best d for the levels that the scales give, as it is stored. */
static inline uint16_t apr_fit_scales(const float *restrict x, const float *restrict w, const apr_scale_search *search, apr_level_fn level,
                                      const apr_block_scales *now)
{
    const float d = apr_f16_to_f32(now->d);
    float aa = 0.0f, ax = 0.0f;
    for (int sub = 0; sub < search->subs; sub++) {
        const int at = sub * search->sub_elems;
        const float a = now->scale[sub];
        const apr_step_sums s = apr_step_fit(x + at, w + at, search->sub_elems, d * a, level);
        aa += a * a * s.cc;
        ax += a * s.cx;
    }
    return aa > 0.0f ? apr_stored_scale(ax / aa) : now->d;
}

static inline apr_block_scales apr_search_scales(const float *restrict x, const float *restrict w, apr_scale_search search,
                                                 apr_level_fn level)
{
    float ideal[APR_MOST_SUBS], largest = 0.0f, extreme = 0.0f;
    apr_block_scales now, best;

    for (int sub = 0; sub < search.subs; sub++) {
        const int at = sub * search.sub_elems;
        ideal[sub] = apr_search_step(x + at, w + at, search.sub_elems, search.step, level);
        const float magnitude = ideal[sub] < 0.0f ? -ideal[sub] : ideal[sub];
        if (magnitude > largest) largest = magnitude, extreme = ideal[sub];
    }
    now.d = apr_stored_scale(extreme / APR_LEAST_SCALE);
    apr_choose_scales(x, w, &search, level, ideal, &now);
    best = now;
    for (int round = 0; round < APR_SCALE_ROUNDS; round++) {
        now.d = apr_fit_scales(x, w, &search, level, &best);
        if (now.d == best.d) break;
        apr_choose_scales(x, w, &search, level, ideal, &now);
        if (!(now.error < best.error)) break;
        best = now;
    }
    return best;
}

#endif
