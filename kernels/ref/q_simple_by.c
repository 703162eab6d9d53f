/* q_simple_by.c - Q4_0, Q5_0, Q4_1 and Q5_1 by importance: grids of 32 values that minimise the weighted squared error.
 *
 * If all values have the same weight, a block is what q_simple.c makes, as ggml does. Otherwise trial grids are laid over the values,
 * each followed by the weighted least-squares scale (and minimum) for its codes. The best one, rounded to FP16, gives the final codes.
 * Of equal results the first one tried is kept. */
#include "kernels/ref/codecs.h"

enum { ELEMS = 32, TRIALS = 11, STRETCHES = 6 };

/* value = step * q + offset; symmetric: codes q from -half to half - 1 and no offset, else 0 to max */
typedef struct grid {
    float step, offset;
} grid;

/* Weighted sums: of the weights, of the values, and of the codes of a grid. */
typedef struct sums {
    float w, x, q, qq, qx;
} sums;

static float inverse_of(float step) { return step > 0x1p-126f || step < -0x1p-126f ? 1.0f / step : 0.0f; }

static float dot(const float *restrict a, const float *restrict b)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = a[l] * b[l] + a[8 + l] * b[8 + l] + a[16 + l] * b[16 + l] + a[24 + l] * b[24 + l];
    return apr_sum8(lane);
}

static float sum(const float *a)
{
    float lane[8];
    for (int l = 0; l < 8; l++) lane[l] = a[l] + a[8 + l] + a[16 + l] + a[24 + l];
    return apr_sum8(lane);
}

/* The nearest codes between low and high. Returns the weighted squared error after decoding. */
static float try_grid(const float *restrict x, const float *restrict w, grid g, float low, float high, float *restrict q, sums *restrict s)
{
    const float inverse = inverse_of(g.step);
    float wq[ELEMS], e[ELEMS], we[ELEMS];

    for (int j = 0; j < ELEMS; j++) {
        q[j] = apr_round_even(apr_clamp((x[j] - g.offset) * inverse, low, high));
        e[j] = q[j] * g.step + g.offset - x[j];
        wq[j] = w[j] * q[j];
        we[j] = w[j] * e[j];
    }
    s->q = sum(wq);
    s->qq = dot(wq, q);
    s->qx = dot(wq, x);
    return dot(we, e);
}

static sums sums_of(const float *restrict x, const float *restrict w)
{
    float wx[ELEMS];
    for (int j = 0; j < ELEMS; j++) wx[j] = w[j] * x[j];
    return (sums){.w = sum(w), .x = sum(wx)};
}

static float rounded(float x) { return apr_f16_to_f32(apr_f32_to_f16(apr_clamp(x, -APR_F16_MAX, APR_F16_MAX))); }

/* Rounds a grid to FP16, and keeps it if its error is less. */
static void keep_better(const float *restrict x, const float *restrict w, grid g, float low, float high, sums *s, float *least, grid *best)
{
    float q[ELEMS];
    const grid stored = {rounded(g.step), rounded(g.offset)};
    const float error = try_grid(x, w, stored, low, high, q, s);
    if (error < *least) *least = error, *best = stored;
}

/* Trial grids put the extreme value at one end of the codes, or a little inside or outside. */
static grid search_symmetric(const float *restrict x, const float *restrict w, float half)
{
    float amax = 0.0f, extreme = 0.0f, least = FLT_MAX, q[ELEMS];
    grid best = {0.0f, 0.0f};
    sums s = sums_of(x, w);

    for (int j = 0; j < ELEMS; j++) {
        const float magnitude = x[j] < 0.0f ? -x[j] : x[j];
        if (magnitude > amax) amax = magnitude, extreme = x[j];
    }
    if (!(amax > 0x1p-40f)) return best;
    for (int t = 0; t < TRIALS; t++) {
        const float step = extreme / (half * (0.03125f * (float)t - 1.0625f));
        try_grid(x, w, (grid){step, 0.0f}, -half, half - 1.0f, q, &s);
        if (s.qq > 0.0f) keep_better(x, w, (grid){s.qx / s.qq, 0.0f}, -half, half - 1.0f, &s, &least, &best);
    }
    return best;
}

/* The least-squares step and offset for the summed codes. False: all codes are equal. */
static bool fit(const sums *s, grid *g)
{
    const float det = s->w * s->qq - s->q * s->q;
    if (!(det > 0.0f)) return false;
    g->step = (s->w * s->qx - s->q * s->x) / det;
    g->offset = (s->qq * s->x - s->q * s->qx) / det;
    return true;
}

/* Trial grids go from the lowest value to the highest in about `max` steps, starting there or half a step above. */
static grid search_affine(const float *restrict x, const float *restrict w, float max)
{
    float low = x[0], high = x[0], least = FLT_MAX, q[ELEMS];
    sums s = sums_of(x, w);

    for (int j = 0; j < ELEMS; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    grid best = {0.0f, rounded(low)};
    if (!(high - low > 0x1p-40f)) return best;
    for (int stretch = 0; stretch < STRETCHES; stretch++)
        for (int shift = 0; shift < 2; shift++) {
            const float step = (high - low) / (max * (0.85f + 0.04f * (float)stretch));
            grid g = {step, low + 0.5f * (float)shift * step};
            try_grid(x, w, g, 0.0f, max, q, &s);
            if (fit(&s, &g) && g.step <= high - low) keep_better(x, w, g, 0.0f, max, &s, &least, &best);
        }
    return best;
}

/* Loads the values and weights of a block. False: all weights are equal. */
static bool begin_block(const float *restrict src, const float *restrict importance, float limit, float *restrict x, float *restrict w)
{
    bool differ = false;
    apr_block_weights(importance, ELEMS, w);
    for (int j = 0; j < ELEMS; j++) {
        x[j] = apr_clamp_finite(src[j], limit);
        differ = differ || w[j] != w[0];
    }
    return differ;
}

/* Codes from 0 on. */
static uint16_t symmetric_block(const float *restrict x, const float *restrict w, float half, uint8_t *restrict code)
{
    const grid best = search_symmetric(x, w, half);
    float q[ELEMS];
    sums s;
    try_grid(x, w, best, -half, half - 1.0f, q, &s);
    for (int j = 0; j < ELEMS; j++) code[j] = (uint8_t)(q[j] + half);
    return apr_f32_to_f16(best.step);
}

static void affine_block(const float *restrict x, const float *restrict w, float max, uint16_t *d, uint16_t *m, uint8_t *restrict code)
{
    const grid best = search_affine(x, w, max);
    float q[ELEMS];
    sums s;
    try_grid(x, w, best, 0.0f, max, q, &s);
    for (int j = 0; j < ELEMS; j++) code[j] = (uint8_t)q[j];
    *d = apr_f32_to_f16(best.step);
    *m = apr_f32_to_f16(best.offset);
}

static void pack_nibbles(const uint8_t *restrict code, uint8_t *restrict qs)
{
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((code[j] & 0x0f) | (code[16 + j] & 0x0f) << 4);
}

static uint32_t fifth_bits(const uint8_t *code)
{
    uint32_t high = 0;
    for (int j = 0; j < ELEMS; j++) high |= (uint32_t)(code[j] >> 4) << j;
    return high;
}

void apr_ref_encode_q4_0_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q4_0 *block = dst;
    float x[ELEMS], w[ELEMS];
    uint8_t code[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        if (!begin_block(src + i, importance + i, APR_F16_MAX * 7.0f, x, w)) {
            apr_ref_encode_q4_0(src + i, block, ELEMS);
            continue;
        }
        block->d = symmetric_block(x, w, 8.0f, code);
        pack_nibbles(code, block->qs);
    }
}

void apr_ref_encode_q5_0_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q5_0 *block = dst;
    float x[ELEMS], w[ELEMS];
    uint8_t code[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        if (!begin_block(src + i, importance + i, APR_F16_MAX * 15.0f, x, w)) {
            apr_ref_encode_q5_0(src + i, block, ELEMS);
            continue;
        }
        block->d = symmetric_block(x, w, 16.0f, code);
        pack_nibbles(code, block->qs);
        block->qh = fifth_bits(code);
    }
}

void apr_ref_encode_q4_1_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q4_1 *block = dst;
    float x[ELEMS], w[ELEMS];
    uint8_t code[ELEMS];
    uint16_t d, m;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        if (!begin_block(src + i, importance + i, APR_F16_MAX, x, w)) {
            apr_ref_encode_q4_1(src + i, block, ELEMS);
            continue;
        }
        affine_block(x, w, 15.0f, &d, &m, code);
        block->d = d;
        block->m = m;
        pack_nibbles(code, block->qs);
    }
}

void apr_ref_encode_q5_1_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    apr_block_Q5_1 *block = dst;
    float x[ELEMS], w[ELEMS];
    uint8_t code[ELEMS];
    uint16_t d, m;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        if (!begin_block(src + i, importance + i, APR_F16_MAX, x, w)) {
            apr_ref_encode_q5_1(src + i, block, ELEMS);
            continue;
        }
        affine_block(x, w, 31.0f, &d, &m, code);
        block->d = d;
        block->m = m;
        pack_nibbles(code, block->qs);
        block->qh = fifth_bits(code);
    }
}
