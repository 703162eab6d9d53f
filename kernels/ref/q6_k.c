/* q6_k.c - Q6_K: 256 values in 16 sub-blocks of 16, value = d * scale * code, codes -32 to 31, scales int8.
 *
 * The layout is ggml's. The search is ours and minimises the squared error, weighted by importance if there is one:
 *   1. each sub-block alone: trial steps, from the one that just holds the extreme value to coarser ones, refitted by least squares;
 *   2. d from the largest of the steps, rounded to FP16; everything after uses this stored number;
 *   3. each sub-block again: int8 scales near the ideal one, compared by the error of the rounded codes;
 *   4. d once more by least squares over the block with the codes fixed; kept if step 3 with it gives less error.
 * Of equal results the first one tried is kept. */
#include "kernels/ref/codecs.h"
#include "kernels/ref/k_search.h"
#include "kernels/ref/step_ladders.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16 };

/* For each half of 128 elements: element 32*k + l (k < 4) has its low nibble in ql[32 * (k % 2) + l] (high half for k >= 2), its upper
 * two bits in bits 2k of qh[l]. */
void apr_ref_decode_q6_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q6_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < SUBS; sub++) {
            const int half = sub / 8, k = sub % 8 / 2, first = sub % 2 * SUB_ELEMS;
            const uint8_t *const ql = block->ql + 64 * half + k % 2 * 32 + first, *const qh = block->qh + 32 * half + first;
            const float step = d * (float)block->scales[sub];
            float *const y = dst + i + SUB_ELEMS * sub;
            for (int l = 0; l < SUB_ELEMS; l++) y[l] = step * (float)(((ql[l] >> k / 2 * 4 & 0x0f) | (qh[l] >> 2 * k & 3) << 4) - 32);
        }
    }
}

/* ---- the search ---- */

enum { MIN_CODE = -32, MAX_CODE = 31, MIN_SCALE = -128, MAX_SCALE = 127 };

/* Weighted sums over a sub-block for least squares. */
typedef struct sums {
    float qq, qx;
} sums;

static inline float code_of(float x, float inverse) { return apr_clamp(apr_round_even(x * inverse), (float)MIN_CODE, (float)MAX_CODE); }

/* Sum of 16 products in 8 lanes. */
static inline float dot(const float *restrict a, const float *restrict b)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = a[l] * b[l] + a[8 + l] * b[8 + l];
    return apr_sum8(lane);
}

/* Gives every value the nearest code, computes the sums, and returns the squared error after decoding. */
static float try_step(const float *restrict x, const float *restrict w, float step, sums *restrict s)
{
    const float inverse = apr_inverse_of(step);
    float q[SUB_ELEMS], wq[SUB_ELEMS], e[SUB_ELEMS], we[SUB_ELEMS];
    for (int j = 0; j < SUB_ELEMS; j++) {
        q[j] = code_of(x[j], inverse);
        e[j] = step * q[j] - x[j];
        wq[j] = w[j] * q[j];
        we[j] = w[j] * e[j];
    }
    s->qq = dot(wq, q);
    s->qx = dot(wq, x);
    return dot(we, e);
}

/* Step 1: the best step of a sub-block, of either sign. With fixed codes the error is least for step = qx / qq, by qx^2 / qq less than
 * with all codes 0. */
static float search_sub_block(const float *restrict x, const float *restrict w)
{
    enum { TRIALS = APR_Q6_K_TRIALS };
    float amax = 0.0f, extreme = 0.0f, gain = 0.0f, best = 0.0f;
    for (int j = 0; j < SUB_ELEMS; j++) {
        const float magnitude = x[j] < 0.0f ? -x[j] : x[j];
        if (magnitude > amax) amax = magnitude, extreme = x[j];
    }
    if (!(amax > 0x1p-40f)) return 0.0f; /* too close to 0 for FP16 */

    for (int t = 0; t < TRIALS; t++) {
        sums s;
        try_step(x, w, extreme / (APR_Q6_K_MIDDLE + APR_Q6_K_GAP * (float)(TRIALS / 2 - t)), &s);
        const float fit = s.qx / s.qq; /* qq is not 0: the extreme value has a code */
        if (s.qx * fit > gain) gain = s.qx * fit, best = fit;
    }
    return best;
}

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d; /* half */
    int scale[SUBS];
    float error;
} block_scales;

/* Step 3 for one sub-block: tries the given scale and two neighbours on each side. Leaves the best in *scale, adds its sums for step 4,
 * with value = d * a, a = scale * code, and returns its error. */
static float choose_scale(const float *restrict x, const float *restrict w, float d, int *scale, float *aa, float *ax)
{
    enum { REACH = APR_Q6_K_REACH };
    const int middle = *scale, first = middle - REACH < MIN_SCALE ? MIN_SCALE : middle - REACH;
    const int last = middle + REACH > MAX_SCALE ? MAX_SCALE : middle + REACH;
    float least = -1.0f;
    sums s, best = {0};

    for (int t = first; t <= last; t++) {
        const float error = try_step(x, w, d * (float)t, &s);
        if (least < 0.0f || error < least) least = error, best = s, *scale = t;
    }
    const float a = (float)*scale;
    *aa += a * a * best.qq;
    *ax += a * best.qx;
    return least;
}

static block_scales search_block(const float *restrict x, const float *restrict w)
{
    float ideal[SUBS], largest = 0.0f, signed_largest = 0.0f;
    for (int sub = 0; sub < SUBS; sub++) {
        ideal[sub] = search_sub_block(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS);
        const float magnitude = ideal[sub] < 0.0f ? -ideal[sub] : ideal[sub];
        if (magnitude > largest) largest = magnitude, signed_largest = ideal[sub];
    }
    block_scales now = {.d = apr_stored_scale(signed_largest / (float)MIN_SCALE)}, best = now;
    for (int sub = 0; sub < SUBS; sub++)
        now.scale[sub] =
            (int)apr_clamp(apr_round_even(ideal[sub] * apr_inverse_of(apr_f16_to_f32(now.d))), (float)MIN_SCALE, (float)MAX_SCALE);

    for (int round = 0; round < APR_Q6_K_ROUNDS; round++) {
        const float d = apr_f16_to_f32(now.d);
        float aa = 0.0f, ax = 0.0f;
        now.error = 0.0f;
        for (int sub = 0; sub < SUBS; sub++)
            now.error += choose_scale(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, d, &now.scale[sub], &aa, &ax);
        if (round > 0 && !(now.error < best.error)) break;
        best = now;
        if (!(aa > 0.0f)) break;
        now.d = apr_stored_scale(ax / aa);
        if (now.d == best.d) break;
    }
    return best;
}

void apr_ref_encode_q6_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q6_k_by(src, NULL, dst, n_elems); }

void apr_ref_encode_q6_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    static const float none[ELEMS] = {0.0f};
    apr_block_Q6_K *block = dst;
    float x[ELEMS], w[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        apr_block_weights(importance != NULL ? importance + i : none, ELEMS, w);
        for (int j = 0; j < ELEMS; j++) x[j] = apr_clamp_finite(src[i + j], APR_F16_MAX * (float)MAX_SCALE * (float)MAX_CODE);
        const block_scales best = search_block(x, w);
        const float d = apr_f16_to_f32(best.d);
        *block = (apr_block_Q6_K){.d = best.d};
        for (int sub = 0; sub < SUBS; sub++) {
            const int half = sub / 8, k = sub % 8 / 2, first = sub % 2 * SUB_ELEMS;
            uint8_t *const ql = block->ql + 64 * half + k % 2 * 32 + first, *const qh = block->qh + 32 * half + first;
            const float inverse = apr_inverse_of(d * (float)best.scale[sub]);
            block->scales[sub] = (int8_t)best.scale[sub];
            for (int l = 0; l < SUB_ELEMS; l++) {
                const int code = (int)code_of(x[SUB_ELEMS * sub + l], inverse) - MIN_CODE;
                ql[l] |= (uint8_t)((code & 0x0f) << k / 2 * 4);
                qh[l] |= (uint8_t)(code >> 4 << 2 * k);
            }
        }
    }
}
