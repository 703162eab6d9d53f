/* q4_q5_k.c - Q4_K and Q5_K: 256 values in 8 sub-blocks of 32, value = d * scale * code - dmin * min.
 *
 * The layouts are ggml's. The search is ours and minimises the squared error, weighted by importance if there is one:
 *   1. each sub-block alone: trial grids over its range, each followed by the least-squares step and offset; the best is polished by
 * choosing codes and fitting again;
 *   2. d and dmin from the largest step and offset, rounded to FP16; everything after uses these stored numbers;
 *   3. each sub-block again: 6-bit scales and minimums near the ideal ones, compared by the error after decoding;
 *   4. d and dmin once more by least squares over the block with the codes fixed, then step 3 again, while it helps.
 * Of equal results the first one tried is kept. */
#include "kernels/ref/codecs.h"
#include "kernels/ref/k_search.h"

enum { ELEMS = 256, SUBS = 8, SUB_ELEMS = 32, MAX_SCALE = 63 };

/*  byte   0..3         4..7         8..11      6-bit scale d and minimum m of 8 sub-blocks. For 4..7 the low
 *         |hh dddddd|  |hh mmmmmm|  |mmmm dddd|  nibbles are in 8..11, the upper two bits in the hh. */
static void unpack_scales(const uint8_t *restrict bytes, uint8_t *restrict scale, uint8_t *restrict min)
{
    for (int j = 0; j < 4; j++) {
        scale[j] = bytes[j] & 63;
        min[j] = bytes[4 + j] & 63;
        scale[4 + j] = (uint8_t)((bytes[8 + j] & 0x0f) | bytes[j] >> 6 << 4);
        min[4 + j] = (uint8_t)(bytes[8 + j] >> 4 | bytes[4 + j] >> 6 << 4);
    }
}

static void pack_scales(const int *restrict scale, const int *restrict min, uint8_t *restrict bytes)
{
    for (int j = 0; j < 4; j++) {
        bytes[j] = (uint8_t)(scale[j] | scale[4 + j] >> 4 << 6);
        bytes[4 + j] = (uint8_t)(min[j] | min[4 + j] >> 4 << 6);
        bytes[8 + j] = (uint8_t)((scale[4 + j] & 0x0f) | (min[4 + j] & 0x0f) << 4);
    }
}

/* 32 bytes have two sub-blocks: the even one in the low nibbles, the odd one in the high nibbles. */
void apr_ref_decode_q4_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q4_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), dmin = apr_f16_to_f32(block->dmin);
        uint8_t scale[SUBS], min[SUBS];
        unpack_scales(block->scales, scale, min);
        for (int sub = 0; sub < SUBS; sub++) {
            const float step = d * (float)scale[sub], offset = dmin * (float)min[sub];
            const uint8_t *const qs = block->qs + sub / 2 * SUB_ELEMS;
            float *const y = dst + i + sub * SUB_ELEMS;
            for (int l = 0; l < SUB_ELEMS; l++) y[l] = step * (float)(qs[l] >> sub % 2 * 4 & 0x0f) - offset;
        }
    }
}

/* As Q4_K; the fifth bit of code l of sub-block s is bit s of qh[l]. */
void apr_ref_decode_q5_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q5_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), dmin = apr_f16_to_f32(block->dmin);
        uint8_t scale[SUBS], min[SUBS];
        unpack_scales(block->scales, scale, min);
        for (int sub = 0; sub < SUBS; sub++) {
            const float step = d * (float)scale[sub], offset = dmin * (float)min[sub];
            const uint8_t *const qs = block->qs + sub / 2 * SUB_ELEMS;
            float *const y = dst + i + sub * SUB_ELEMS;
            for (int l = 0; l < SUB_ELEMS; l++)
                y[l] = step * (float)((qs[l] >> sub % 2 * 4 & 0x0f) | (block->qh[l] >> sub & 1) << 4) - offset;
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

static float inverse_of(float step) { return step > 0.0f ? 1.0f / step : 0.0f; }

static inline float code_of(float x, float inverse, float offset, float max_code)
{
    return apr_clamp(apr_round_even((x + offset) * inverse), 0.0f, max_code);
}

/* Sum of 32 products in 8 lanes. */
static inline float dot(const float *restrict a, const float *restrict b)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = a[l] * b[l] + a[8 + l] * b[8 + l] + a[16 + l] * b[16 + l] + a[24 + l] * b[24 + l];
    return apr_sum8(lane);
}

static inline float sum(const float *restrict a)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = a[l] + a[8 + l] + a[16 + l] + a[24 + l];
    return apr_sum8(lane);
}

/* Gives every value the grid's nearest code, computes the sums, and returns the squared error after decoding. */
static float try_grid(const float *restrict x, const float *restrict w, grid g, float max_code, sums *restrict s)
{
    const float inverse = inverse_of(g.step);
    float q[SUB_ELEMS], wq[SUB_ELEMS], e[SUB_ELEMS], we[SUB_ELEMS];
    for (int j = 0; j < SUB_ELEMS; j++) {
        q[j] = code_of(x[j], inverse, g.offset, max_code);
        e[j] = g.step * q[j] - g.offset - x[j];
        wq[j] = w[j] * q[j];
        we[j] = w[j] * e[j];
    }
    s->q = sum(wq);
    s->qq = dot(wq, q);
    s->qx = dot(wq, x);
    return dot(we, e);
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

/* The sums that do not depend on codes. */
static sums sums_of(const float *restrict x, const float *restrict w)
{
    float wx[SUB_ELEMS];
    for (int j = 0; j < SUB_ELEMS; j++) wx[j] = w[j] * x[j];
    return (sums){.w = sum(w), .x = sum(wx), .xx = dot(wx, x)};
}

/* Step 1. Trial grids start at the lowest value or half a step above. If one value has nearly all the weight, a fit can be meaningless:
 * it is rejected if its step is larger than the range. */
static grid search_sub_block(const float *restrict x, const float *restrict w, apr_k_search search)
{
    const float max_code = search.max_code;
    float low = 0.0f, high = x[0]; /* code 0 stands for 0 or less */
    for (int j = 0; j < SUB_ELEMS; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    grid best = {0.0f, -low};
    if (!(high - low > 0x1p-40f)) return best; /* equal, or too close for FP16 */

    float least = FLT_MAX, error;
    sums s = sums_of(x, w);
    for (int stretch = 0; stretch < search.stretches; stretch++)
        for (int shift = 0; shift < 2; shift++) {
            const float step = (high - low) / (search.first_steps + search.gap * (float)stretch);
            try_grid(x, w, (grid){step, -low - 0.5f * (float)shift * step}, max_code, &s);
            const grid g = fit(&s, &error);
            if (error < least && g.step <= high - low) least = error, best = g;
        }
    for (int polish = 0; polish < search.polishes; polish++) {
        try_grid(x, w, best, max_code, &s);
        const grid g = fit(&s, &error);
        if (error < least && g.step <= high - low) least = error, best = g;
        else break;
    }
    return best;
}

/* The stored scales of a block, and its squared error. */
typedef struct block_scales {
    uint16_t d, dmin; /* FP16 */
    int scale[SUBS], min[SUBS];
    float error;
} block_scales;

/* Sums over the block for step 4, with value = d * a - dmin * b, a = scale * code, b = min. */
typedef struct block_sums {
    float aa, ab, bb, ax, bx;
} block_sums;

static int nearest_scale(float x) { return (int)apr_clamp(apr_round_even(x), 0.0f, (float)MAX_SCALE); }

/* To FP16; a non-zero value stays non-zero, and a too large one becomes the largest. */
static uint16_t stored_scale(float x)
{
    const uint16_t half = apr_f32_to_f16(x < APR_F16_MAX ? x : APR_F16_MAX);
    return half == 0 && x > 0.0f ? 1 : half;
}

/* Step 3 for one sub-block: tries the given scale and its neighbours, each with the given minimum and then with the minimum that fits
 * its codes. Leaves the best in *scale and *min, adds its sums to *all, and returns its error. */
static float choose_scale(const float *restrict x, const float *restrict w, float d, float dmin, apr_k_search search, int *scale, int *min,
                          block_sums *all)
{
    const int reach = search.reach;
    const int middle = *scale, first_min = *min;
    const float inverse_dmin = inverse_of(dmin);
    float least = -1.0f;
    sums s = sums_of(x, w), best = {0};

    for (int t = middle > reach ? middle - reach : 0; t <= middle + reach && t <= MAX_SCALE; t++)
        for (int pass = 0, m = first_min; pass < 2; pass++) {
            const grid g = {d * (float)t, dmin * (float)m};
            const float error = try_grid(x, w, g, search.max_code, &s);
            if (least < 0.0f || error < least) least = error, best = s, *scale = t, *min = m;
            const int suited = nearest_scale((g.step * s.q - s.x) / s.w * inverse_dmin);
            if (suited == m) break;
            m = suited;
        }
    const float a = (float)*scale, b = (float)*min;
    all->aa += a * a * best.qq;
    all->ab += a * b * best.q;
    all->bb += b * b * best.w;
    all->ax += a * best.qx;
    all->bx += b * best.x;
    return least;
}

/* Step 4: the d and dmin that minimise the sum of (x - d * a + dmin * b)^2. False: there is no such pair that can be stored. */
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

static block_scales search_block(const float *restrict x, const float *restrict w, apr_k_search search)
{
    grid ideal[SUBS];
    float max_step = 0.0f, max_offset = 0.0f;
    for (int sub = 0; sub < SUBS; sub++) {
        ideal[sub] = search_sub_block(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, search);
        max_step = ideal[sub].step > max_step ? ideal[sub].step : max_step;
        max_offset = ideal[sub].offset > max_offset ? ideal[sub].offset : max_offset;
    }
    block_scales now = {.d = stored_scale(max_step / (float)MAX_SCALE), .dmin = stored_scale(max_offset / (float)MAX_SCALE)}, best = now;
    for (int sub = 0; sub < SUBS; sub++) {
        now.scale[sub] = nearest_scale(ideal[sub].step * inverse_of(apr_f16_to_f32(now.d)));
        now.min[sub] = nearest_scale(ideal[sub].offset * inverse_of(apr_f16_to_f32(now.dmin)));
    }
    for (int round = 0; round < search.rounds; round++) {
        const float d = apr_f16_to_f32(now.d), dmin = apr_f16_to_f32(now.dmin);
        block_sums all = {0};
        now.error = 0.0f;
        for (int sub = 0; sub < SUBS; sub++)
            now.error += choose_scale(x + sub * SUB_ELEMS, w + sub * SUB_ELEMS, d, dmin, search, &now.scale[sub], &now.min[sub], &all);
        if (round > 0 && !(now.error < best.error)) break;
        best = now;
        if (!fit_block(&all, &now.d, &now.dmin) || (now.d == best.d && now.dmin == best.dmin)) break;
    }
    return best;
}

/* Encodes a block: its scales and its codes. importance: NULL, or the weights of the values. */
static block_scales encode_block(const float *restrict src, const float *restrict importance, apr_k_search search, uint8_t *restrict code)
{
    static const float none[ELEMS] = {0.0f};
    const float max_code = search.max_code;
    float x[ELEMS], w[ELEMS];
    apr_block_weights(importance != NULL ? importance : none, ELEMS, w);
    for (int i = 0; i < ELEMS; i++) x[i] = apr_clamp_finite(src[i], APR_F16_MAX * (float)MAX_SCALE * max_code);
    const block_scales best = search_block(x, w, search);
    const float d = apr_f16_to_f32(best.d), dmin = apr_f16_to_f32(best.dmin);
    for (int sub = 0; sub < SUBS; sub++) {
        const float inverse = inverse_of(d * (float)best.scale[sub]), offset = dmin * (float)best.min[sub];
        for (int i = sub * SUB_ELEMS; i < (sub + 1) * SUB_ELEMS; i++) code[i] = (uint8_t)code_of(x[i], inverse, offset, max_code);
    }
    return best;
}

/* Packs the low nibbles of 256 codes, two sub-blocks into 32 bytes. */
static void pack_nibbles(const uint8_t *restrict code, uint8_t *restrict qs)
{
    for (int pair = 0; pair < SUBS / 2; pair++, code += 2 * SUB_ELEMS, qs += SUB_ELEMS)
        for (int l = 0; l < SUB_ELEMS; l++) qs[l] = (uint8_t)((code[l] & 0x0f) | (code[SUB_ELEMS + l] & 0x0f) << 4);
}

void apr_ref_encode_q4_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q4_K *block = dst;
    uint8_t code[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const block_scales best = encode_block(src + i, importance != NULL ? importance + i : NULL, (apr_k_search)APR_Q4_K_SEARCH, code);
        block->d = best.d;
        block->dmin = best.dmin;
        pack_scales(best.scale, best.min, block->scales);
        pack_nibbles(code, block->qs);
    }
}

void apr_ref_encode_q5_k_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q5_K *block = dst;
    uint8_t code[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const block_scales best = encode_block(src + i, importance != NULL ? importance + i : NULL, (apr_k_search)APR_Q5_K_SEARCH, code);
        block->d = best.d;
        block->dmin = best.dmin;
        pack_scales(best.scale, best.min, block->scales);
        pack_nibbles(code, block->qs);
        for (int l = 0; l < SUB_ELEMS; l++) {
            unsigned fifth_bits = 0;
            for (int sub = 0; sub < SUBS; sub++) fifth_bits |= (unsigned)(code[SUB_ELEMS * sub + l] >> 4) << sub;
            block->qh[l] = (uint8_t)fifth_bits;
        }
    }
}

void apr_ref_encode_q4_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q4_k_by(src, NULL, dst, n_elems); }
void apr_ref_encode_q5_k(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_q5_k_by(src, NULL, dst, n_elems); }
