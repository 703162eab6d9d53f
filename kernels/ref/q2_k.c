/* q2_k.c - Q2_K: 256 values in 16 sub-blocks of 16, value = d * scale * code - dmin * min, 4-bit scales and minimums, 2-bit codes.
 *
 * The layout is ggml's. The search is ours and minimises the squared error, weighted by importance if there is one:
 *   1. each sub-block alone: trial grids over its range, each followed by the least-squares step and offset; the best is polished;
 *   2. several pairs of d and dmin that hold the largest step and offset. With each, every sub-block chooses among the scales near the
 *      ideal one, each with the minimums that fit its codes, by the error after decoding; the best pair is kept;
 *   3. d and dmin once more by least squares over the block with the codes fixed, then the choice of scales again, while it helps.
 * Of equal results the first one tried is kept. */
#include "kernels/ref/codecs.h"
#include "kernels/ref/q2_k_search.h"

enum { ELEMS = 256, SUBS = 16, SUB_ELEMS = 16, MAX_SCALE = 15 };

/* Element 128*h + 32*s + l is bits 2s of byte 32*h + l. Sub-blocks are runs of 16. */
static inline int code_2_bits(const uint8_t *qs, int half, int step, int l) { return qs[32 * half + l] >> 2 * step & 3; }

/* A sub-block's byte holds its scale in the low nibble and its minimum in the high one: value = d * scale * q - dmin * min. */
void apr_ref_decode_q2_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q2_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), dmin = apr_f16_to_f32(block->dmin);
        for (int sub = 0; sub < 16; sub++) {
            const float scale = d * (float)(block->scales[sub] & 0x0f), min = dmin * (float)(block->scales[sub] >> 4);
            const int half = sub / 8, step = sub % 8 / 2, first = sub % 2 * 16;
            float *const y = dst + i + 16 * sub;
            for (int l = 0; l < 16; l++) y[l] = scale * (float)code_2_bits(block->qs, half, step, first + l) - min;
        }
    }
}

/* ---- the search ---- */

/* A grid is value = step * code - offset. */
typedef struct grid {
    float step, offset;
} grid;

/* Weighted sums over a sub-block for least squares: of the weights, of the values, and of the codes of a grid. */
typedef struct sums {
    float w, x, xx, q, qq, qx;
} sums;

static const float max_code = 3.0f;

static float inverse_of(float step) { return step > 0.0f ? 1.0f / step : 0.0f; }

static inline float code_of(float x, float inverse, float offset)
{
    return apr_clamp(apr_round_even((x + offset) * inverse), 0.0f, max_code);
}

/* Sum of 16 products in 8 lanes. */
static inline float dot(const float *restrict a, const float *restrict b)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = a[l] * b[l] + a[8 + l] * b[8 + l];
    return apr_sum8(lane);
}

static inline float sum(const float *restrict a)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = a[l] + a[8 + l];
    return apr_sum8(lane);
}

/* Gives every value the grid's nearest code, computes the sums, and returns the squared error after decoding. */
static float try_grid(const float *restrict x, const float *restrict w, grid g, sums *restrict s)
{
    const float inverse = inverse_of(g.step);
    float q[SUB_ELEMS], wq[SUB_ELEMS], e[SUB_ELEMS], we[SUB_ELEMS];
    for (int j = 0; j < SUB_ELEMS; j++) {
        q[j] = code_of(x[j], inverse, g.offset);
        e[j] = g.step * q[j] - g.offset - x[j];
        wq[j] = w[j] * q[j];
        we[j] = w[j] * e[j];
    }
    s->q = sum(wq);
    s->qq = dot(wq, q);
    s->qx = dot(wq, x);
    return dot(we, e);
}

/* The sums that do not depend on codes. */
static sums sums_of(const float *restrict x, const float *restrict w)
{
    float wx[SUB_ELEMS];
    for (int j = 0; j < SUB_ELEMS; j++) wx[j] = w[j] * x[j];
    return (sums){.w = sum(w), .x = sum(wx), .xx = dot(wx, x)};
}

/* The least-squares grid for the codes summed in s, and its squared error (the sum of w * (x - step * q + offset)^2, multiplied out).
 * Stored offsets are not negative. */
static grid fit(const sums *s, float *error)
{
    const float n = s->w, det = n * s->qq - s->q * s->q;
    grid g = {0.0f, -1.0f};
    if (det > 0.0f) {
        g.step = (n * s->qx - s->q * s->x) / det;
        g.offset = (s->q * s->qx - s->qq * s->x) / det;
    }
    if (g.offset < 0.0f) { /* or all codes are equal */
        g.offset = 0.0f;
        g.step = s->qq > 0.0f ? s->qx / s->qq : 0.0f;
    }
    if (g.step < 0.0f) g.step = 0.0f;
    *error = s->xx + g.step * (g.step * s->qq - 2.0f * s->qx) + g.offset * (2.0f * (s->x - g.step * s->q) + n * g.offset);
    return g;
}

/* Step 1. Trial grids start at the lowest value or half a step above. If one value has nearly all the weight, a fit can be
 * meaningless: it is rejected if its step is larger than the range. */
static grid search_sub_block(const float *restrict x, const float *restrict w)
{
    float low = 0.0f, high = x[0]; /* code 0 stands for 0 or less */
    for (int j = 0; j < SUB_ELEMS; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    grid best = {0.0f, -low};
    if (!(high - low > 0x1p-40f)) return best; /* equal, or too close for FP16 */

    float least = FLT_MAX, error;
    sums s = sums_of(x, w);
    for (int stretch = 0; stretch < APR_Q2_K_STRETCHES; stretch++)
        for (int shift = 0; shift < 2; shift++) {
            const float step = (high - low) / (APR_Q2_K_FIRST_STEPS + APR_Q2_K_STEPS_GAP * (float)stretch);
            try_grid(x, w, (grid){step, -low - 0.5f * (float)shift * step}, &s);
            const grid g = fit(&s, &error);
            if (error < least && g.step <= high - low) least = error, best = g;
        }
    try_grid(x, w, best, &s);
    const grid g = fit(&s, &error);
    return error < least && g.step <= high - low ? g : best;
}

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    float scale[SUBS], min[SUBS], error;
} block_scales;

/* Sums over the block for step 3, with value = d * a - dmin * b, a = scale * code, b = min. */
typedef struct block_sums {
    float aa, ab, bb, ax, bx;
} block_sums;

static float nearest_scale(float x) { return apr_clamp(apr_round_even(x), 0.0f, (float)MAX_SCALE); }

/* To FP16; a non-zero value stays non-zero, and a too large one becomes the largest. */
static uint16_t stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(x < APR_F16_MAX ? x : APR_F16_MAX);
    return half == 0 && x > 0.0f ? 1 : half;
}

/* Chooses the scale and minimum of a sub-block: scales near the ideal one, each with the ideal minimum and then with the minimum that
 * fits its codes. Leaves the best in *scale and *min, adds its sums to *all, and returns its error. */
static float choose_scale(const float *restrict x, const float *restrict w, float d, float dmin, grid ideal, float *scale, float *min,
                          block_sums *all)
{
    const float inverse_dmin = inverse_of(dmin);
    const float middle = nearest_scale(ideal.step * inverse_of(d)), first_min = nearest_scale(ideal.offset * inverse_dmin);
    float least = -1.0f;
    sums s = sums_of(x, w), best = {0};

    for (int away = -APR_Q2_K_REACH; away <= APR_Q2_K_REACH; away++) {
        const float t = middle + (float)away;
        if (t < 0.0f || t > (float)MAX_SCALE) continue;
        float m = first_min;
        for (int pass = 0; pass < APR_Q2_K_PASSES; pass++) {
            const grid g = {d * t, dmin * m};
            const float error = try_grid(x, w, g, &s);
            if (least < 0.0f || error < least) least = error, best = s, *scale = t, *min = m;
            const float suited = nearest_scale((g.step * s.q - s.x) / s.w * inverse_dmin);
            if (suited == m) break;
            m = suited;
        }
    }
    const float a = *scale, b = *min;
    all->aa += a * a * best.qq;
    all->ab += a * b * best.q;
    all->bb += b * b * best.w;
    all->ax += a * best.qx;
    all->bx += b * best.x;
    return least;
}

static block_sums choose_scales(const float *restrict x, const float *restrict w, const grid *ideal, block_scales *now)
{
    const float d = apr_f16_to_f32(now->d), dmin = apr_f16_to_f32(now->dmin);
    block_sums all = {0};

    now->error = 0.0f;
    for (int sub = 0; sub < SUBS; sub++)
        now->error += choose_scale(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, d, dmin, ideal[sub], &now->scale[sub], &now->min[sub], &all);
    return all;
}

/* Step 3: the d and dmin that minimise the sum of (x - d * a + dmin * b)^2. False: no such pair can be stored. */
static bool fit_block(const block_sums *s, uint16_t *d, uint16_t *dmin)
{
    const float det = s->aa * s->bb - s->ab * s->ab;
    const float fit_d = det > 0.0f ? (s->ax * s->bb - s->bx * s->ab) / det : s->aa > 0.0f ? s->ax / s->aa : 0.0f;
    const float fit_dmin = det > 0.0f ? (s->ax * s->ab - s->bx * s->aa) / det : 0.0f;

    if (!(fit_d > 0.0f && fit_dmin >= 0.0f)) return false;
    *d = stored_scale(fit_d);
    *dmin = stored_scale(fit_dmin);
    return true;
}

static block_scales search_block(const float *restrict x, const float *restrict w)
{
    grid ideal[SUBS];
    float max_step = 0.0f, max_offset = 0.0f;
    for (int sub = 0; sub < SUBS; sub++) {
        ideal[sub] = search_sub_block(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS);
        max_step = ideal[sub].step > max_step ? ideal[sub].step : max_step;
        max_offset = ideal[sub].offset > max_offset ? ideal[sub].offset : max_offset;
    }
    block_scales now, best = {.error = -1.0f};
    block_sums all, best_sums = {0};
    for (int k = 0; k < APR_Q2_K_STARTS * APR_Q2_K_STARTS; k++) {
        now.d = stored_scale(max_step / (float)(MAX_SCALE - k / APR_Q2_K_STARTS));
        now.dmin = stored_scale(max_offset / (float)(MAX_SCALE - k % APR_Q2_K_STARTS));
        all = choose_scales(x, w, ideal, &now);
        if (best.error < 0.0f || now.error < best.error) best = now, best_sums = all;
    }
    for (int round = 0; round < APR_Q2_K_ROUNDS; round++) {
        if (!fit_block(&best_sums, &now.d, &now.dmin) || (now.d == best.d && now.dmin == best.dmin)) break;
        all = choose_scales(x, w, ideal, &now);
        if (!(now.error < best.error)) break;
        best = now;
        best_sums = all;
    }
    return best;
}

/* ---- the encoder ---- */

void apr_ref_encode_q2_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    static const float none[ELEMS] = {0.0f};
    apr_block_Q2_K *block = dst;
    float x[ELEMS], w[ELEMS];

    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        apr_block_weights(importance != NULL ? importance + i : none, ELEMS, w);
        for (int j = 0; j < ELEMS; j++) x[j] = apr_clamp_finite(src[i + j], APR_F16_MAX * (float)MAX_SCALE * max_code);
        const block_scales best = search_block(x, w);
        const float d = apr_f16_to_f32(best.d), dmin = apr_f16_to_f32(best.dmin);
        *block = (apr_block_Q2_K){.d = best.d, .dmin = best.dmin};
        for (int sub = 0; sub < SUBS; sub++) {
            const float inverse = inverse_of(d * best.scale[sub]), offset = dmin * best.min[sub];
            const int half = sub / 8, run = sub % 8 / 2, first = sub % 2 * SUB_ELEMS;
            block->scales[sub] = (uint8_t)((int)best.scale[sub] | (int)best.min[sub] << 4);
            for (int l = 0; l < SUB_ELEMS; l++)
                block->qs[32 * half + first + l] |= (uint8_t)((int)code_of(x[SUB_ELEMS * sub + l], inverse, offset) << 2 * run);
        }
    }
}

void apr_ref_encode_q2_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q2_k_by(src, NULL, dst, n_elems); }
