/* simd_simple.c - encoders of blocks of 32 with one scale, one block a lane: Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 as kernels/ref/q_simple.c
 * encodes them, and MXFP4 as kernels/ref/fp4.c. */
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/host/codecs/simd_transpose.h"
#include "kernels/ref/codecs.h"

enum { ELEMS = 32 };

/* A block of zeros has no scale, and 1 / d overflows for a d below 2^-127. */
WIDE_INLINE wide inverse_of(wide d) { return wide_where(wide_less(wide_set(0x1p-126f), wide_abs(d)), wide_div(wide_set(1.0f), d)); }

/* Scale and offset for the codes of each lane. */
typedef struct lane_scales {
    float inverse[WIDE], offset[WIDE];
    uint16_t d[WIDE], m[WIDE]; /* FP16 */
} lane_scales;

/* Symmetric: the extreme value gets code 0. For equal magnitudes the first is the extreme. */
WIDE_INLINE void symmetric_scales(const wide *x, float half, lane_scales *lanes)
{
    wide amax = wide_set(0.0f), extreme = wide_set(0.0f);
    for (int j = 0; j < ELEMS; j++) {
        const wide magnitude = wide_abs(x[j]);
        const wide_mask larger = wide_less(amax, magnitude);
        amax = wide_choose(larger, magnitude, amax);
        extreme = wide_choose(larger, x[j], extreme);
    }
    const wide d = wide_div(extreme, wide_set(-half));
    wide_store(lanes->inverse, inverse_of(d));
    wide_store_f16(lanes->d, d);
}

/* With minimum. */
WIDE_INLINE void affine_scales(const wide *x, float steps, lane_scales *lanes)
{
    wide low = wide_set(FLT_MAX), high = wide_set(-FLT_MAX);
    for (int j = 0; j < ELEMS; j++) {
        low = wide_min(x[j], low);
        high = wide_max(x[j], high);
    }
    low = wide_clamp(low, -APR_F16_MAX, APR_F16_MAX);
    const wide d = wide_where(wide_less(low, high), wide_div(wide_sub(high, low), wide_set(steps)));
    wide_store(lanes->inverse, inverse_of(d));
    wide_store(lanes->offset, low);
    wide_store_f16(lanes->d, d);
    wide_store_f16(lanes->m, low);
}

WIDE_INLINE void symmetric_codes(const float *x, float inverse, float half, uint8_t *code)
{
    for (int j = 0; j < ELEMS; j += WIDE) {
        const wide t = wide_add(wide_mul(wide_load(x + j), wide_set(inverse)), wide_set(half + 0.5f));
        wide_store_bytes(code + j, wide_clamp(t, 0.0f, 2.0f * half - 1.0f));
    }
}

WIDE_INLINE void affine_codes(const float *x, float inverse, float low, float steps, uint8_t *code)
{
    for (int j = 0; j < ELEMS; j += WIDE) {
        const wide t = wide_mul(wide_sub(wide_load(x + j), wide_set(low)), wide_set(inverse));
        wide_store_bytes(code + j, wide_clamp(wide_add(t, wide_set(0.5f)), 0.0f, steps));
    }
}

WIDE_INLINE uint32_t fifth_bits(const uint8_t *code)
{
    uint32_t high = 0;
    for (int j = 0; j < ELEMS; j++) high |= (uint32_t)(code[j] >> 4) << j;
    return high;
}

static void encode_q4_0_group(const float *src, uint8_t *dst)
{
    float flat[WIDE * ELEMS];
    wide x[ELEMS];
    lane_scales lanes;
    uint8_t code[ELEMS];

    wide_transpose_blocks(src, ELEMS, APR_F16_MAX * 8.0f, flat, x);
    symmetric_scales(x, 8.0f, &lanes);
    for (int b = 0; b < WIDE; b++) {
        apr_block_Q4_0 *const block = (apr_block_Q4_0 *)dst + b;
        symmetric_codes(flat + b * ELEMS, lanes.inverse[b], 8.0f, code);
        block->d = lanes.d[b];
        wide_pack_nibbles(block->qs, code, code + 16);
    }
}

static void encode_q5_0_group(const float *src, uint8_t *dst)
{
    float flat[WIDE * ELEMS];
    wide x[ELEMS];
    lane_scales lanes;
    uint8_t code[ELEMS];

    wide_transpose_blocks(src, ELEMS, APR_F16_MAX * 16.0f, flat, x);
    symmetric_scales(x, 16.0f, &lanes);
    for (int b = 0; b < WIDE; b++) {
        apr_block_Q5_0 *const block = (apr_block_Q5_0 *)dst + b;
        symmetric_codes(flat + b * ELEMS, lanes.inverse[b], 16.0f, code);
        block->d = lanes.d[b];
        block->qh = fifth_bits(code);
        wide_pack_nibbles(block->qs, code, code + 16);
    }
}

static void encode_q4_1_group(const float *src, uint8_t *dst)
{
    float flat[WIDE * ELEMS];
    wide x[ELEMS];
    lane_scales lanes;
    uint8_t code[ELEMS];

    wide_transpose_blocks(src, ELEMS, APR_F16_MAX * 14.0f, flat, x);
    affine_scales(x, 15.0f, &lanes);
    for (int b = 0; b < WIDE; b++) {
        apr_block_Q4_1 *const block = (apr_block_Q4_1 *)dst + b;
        affine_codes(flat + b * ELEMS, lanes.inverse[b], lanes.offset[b], 15.0f, code);
        block->d = lanes.d[b];
        block->m = lanes.m[b];
        wide_pack_nibbles(block->qs, code, code + 16);
    }
}

static void encode_q5_1_group(const float *src, uint8_t *dst)
{
    float flat[WIDE * ELEMS];
    wide x[ELEMS];
    lane_scales lanes;
    uint8_t code[ELEMS];

    wide_transpose_blocks(src, ELEMS, APR_F16_MAX * 30.0f, flat, x);
    affine_scales(x, 31.0f, &lanes);
    for (int b = 0; b < WIDE; b++) {
        apr_block_Q5_1 *const block = (apr_block_Q5_1 *)dst + b;
        affine_codes(flat + b * ELEMS, lanes.inverse[b], lanes.offset[b], 31.0f, code);
        block->d = lanes.d[b];
        block->m = lanes.m[b];
        block->qh = fifth_bits(code);
        wide_pack_nibbles(block->qs, code, code + 16);
    }
}

/* Ties away from zero: the truncated rest is exact, and so is the comparison with it. */
WIDE_INLINE void q8_0_codes(const float *x, float inverse, int8_t *code)
{
    const wide half = wide_set(0.5f), one = wide_set(1.0f);
    for (int j = 0; j < ELEMS; j += WIDE) {
        const wide t = wide_mul(wide_load(x + j), wide_set(inverse)), whole = wide_truncate(t), rest = wide_sub(t, whole);
        const wide up = wide_where(wide_at_most(half, rest), one), down = wide_where(wide_at_most(rest, wide_minus(half)), one);
        wide_store_bytes(code + j, wide_sub(wide_add(whole, up), down));
    }
}

static void encode_q8_0_group(const float *src, uint8_t *dst)
{
    float flat[WIDE * ELEMS];
    wide x[ELEMS], amax = wide_set(0.0f);
    lane_scales lanes;

    wide_transpose_blocks(src, ELEMS, APR_F16_MAX * 127.0f, flat, x);
    for (int j = 0; j < ELEMS; j++) amax = wide_max(wide_abs(x[j]), amax);
    const wide d = wide_div(amax, wide_set(127.0f));
    wide_store(lanes.inverse, inverse_of(d));
    wide_store_f16(lanes.d, d);
    for (int b = 0; b < WIDE; b++) {
        apr_block_Q8_0 *const block = (apr_block_Q8_0 *)dst + b;
        block->d = lanes.d[b];
        q8_0_codes(flat + b * ELEMS, lanes.inverse[b], block->qs);
    }
}

#define ENCODER(id, name)                                                                                         \
    static void encode_##name(const float *src, void *dst, int64_t n_elems)                                       \
    {                                                                                                             \
        wide_encode_groups(src, dst, n_elems, WIDE *ELEMS, ELEMS, sizeof(apr_block_##id), encode_##name##_group); \
    }
ENCODER(Q4_0, q4_0)
ENCODER(Q4_1, q4_1)
ENCODER(Q5_0, q5_0)
ENCODER(Q5_1, q5_1)
ENCODER(Q8_0, q8_0)

/* ---- MXFP4 ---- */

enum { MAX_E = 252 };

/* Nearest of 0 1 2 3 4 6 8 12 to a magnitude, ties to the lower one. From 2 on these are the numbers with one bit of mantissa: adding
 * half of the last bit minus one carries only from above the middle. */
WIDE_INLINE wide nearest_e2m1(wide a)
{
    const wide_bits carried = wide_bits_add(wide_bits_of(a), wide_bits_set(0x001fffff));
    const wide of_two_bits = wide_from_bits(wide_bits_and(carried, wide_bits_set(0xffc00000)));
    const wide large = wide_min(wide_max(of_two_bits, wide_set(2.0f)), wide_set(12.0f));
    const wide small = wide_where(wide_less(wide_set(0.5f), a), wide_set(1.0f));
    return wide_choose(wide_less(wide_set(1.5f), a), large, small);
}

/* The code of a value: its index among the eight, plus 8 if it is negative; -0 is never written. */
WIDE_INLINE wide code_e2m1(wide u)
{
    const wide v = nearest_e2m1(wide_abs(u)), one = wide_set(1.0f), zero = wide_set(0.0f);
    const wide_mask is_negative = wide_both(wide_less(u, zero), wide_less(zero, v));
    wide code = wide_min(v, wide_set(4.0f)); /* the indexes of 6, 8 and 12 are corrected below */
    code = wide_add(code, wide_where(wide_less(wide_set(4.0f), v), one));
    code = wide_add(code, wide_where(wide_less(wide_set(6.0f), v), one));
    code = wide_add(code, wide_where(wide_less(wide_set(8.0f), v), one));
    return wide_add(code, wide_where(is_negative, wide_set(8.0f)));
}

/* Weighted squared error of blocks scaled so that the middle exponent has steps of 1; w NULL: all weights are 1. */
WIDE_INLINE wide squared_error(const wide *a, const wide *w, float step)
{
    wide sum[8];
    for (int l = 0; l < 8; l++)
        for (int k = 0; k < 4; k++) {
            const wide v = a[l + 8 * k], near = nearest_e2m1(wide_mul(v, wide_set(1.0f / step)));
            const wide error = wide_sub(wide_mul(near, wide_set(step)), v);
            const wide square = wide_mul(w != NULL ? wide_mul(w[l + 8 * k], error) : error, error);
            sum[l] = k == 0 ? square : wide_add(sum[l], square);
        }
    return wide_sum8(sum);
}

/* For each block: the exponent of ggml's rule, and the two factors that scale by it. */
typedef struct lane_exponents {
    float floor_e[WIDE], f[WIDE], g[WIDE], is_zero[WIDE];
} lane_exponents;

WIDE_INLINE void exponents_of(wide amax, lane_exponents *lanes)
{
    float most[WIDE];
    wide_store(most, amax);
    for (int b = 0; b < WIDE; b++) {
        const int exponent = (int)(apr_f32_bits(most[b]) >> 23), floor_e = exponent > 2 ? exponent - 2 : 0;
        const int shift = 128 - floor_e, first = shift / 2, second = shift - first;
        lanes->floor_e[b] = (float)floor_e;
        lanes->f[b] = apr_f32_from_bits((uint32_t)(first + 127) << 23);
        lanes->g[b] = apr_f32_from_bits((uint32_t)(second + 127) << 23);
        lanes->is_zero[b] = most[b] == 0.0f ? 1.0f : 0.0f;
    }
}

/* The index of the best of the three exponents: for equal errors the smallest one that a byte can store. */
WIDE_INLINE wide best_exponents(const wide *x, const wide *w, const lane_exponents *lanes)
{
    const wide f = wide_load(lanes->f), g = wide_load(lanes->g), floor_e = wide_load(lanes->floor_e);
    wide a[ELEMS];

    for (int j = 0; j < ELEMS; j++) a[j] = wide_abs(wide_mul(wide_mul(x[j], f), g));
    const wide below = squared_error(a, w, 0.5f), here = squared_error(a, w, 1.0f), above = squared_error(a, w, 2.0f);
    const wide_mask may_go_up = wide_at_most(floor_e, wide_set((float)MAX_E - 1.0f));
    const wide_mask stays = wide_either(wide_less(floor_e, wide_set(1.0f)), wide_less(here, below));
    const wide least = wide_choose(stays, here, below), best = wide_where(stays, wide_set(1.0f));
    return wide_choose(wide_both(may_go_up, wide_less(above, least)), wide_set(2.0f), best);
}

/* importance: NULL if all values weigh the same. */
WIDE_INLINE void encode_mxfp4_blocks(const float *src, const float *importance, uint8_t *dst)
{
    static const float inverse_step[3] = {2.0f, 1.0f, 0.5f};
    float flat[WIDE * ELEMS], best[WIDE], weights[WIDE * ELEMS];
    wide x[ELEMS], w[ELEMS], amax = wide_set(0.0f);
    lane_exponents lanes;
    uint8_t code[ELEMS];

    wide_transpose_blocks(src, ELEMS, FLT_MAX, flat, x);
    for (int b = 0; b < WIDE && importance != NULL; b++) apr_block_weights(importance + b * ELEMS, ELEMS, weights + b * ELEMS);
    if (importance != NULL) wide_transpose_weights(weights, ELEMS, w);
    for (int j = 0; j < ELEMS; j++) amax = wide_max(wide_abs(x[j]), amax);
    exponents_of(amax, &lanes);
    wide_store(best, best_exponents(x, importance != NULL ? w : NULL, &lanes));
    for (int b = 0; b < WIDE; b++) {
        apr_block_MXFP4 *const block = (apr_block_MXFP4 *)dst + b;
        const wide f = wide_set(lanes.f[b]), g = wide_set(lanes.g[b]), h = wide_set(inverse_step[(int)best[b]]);
        for (int j = 0; j < ELEMS; j += WIDE)
            wide_store_bytes(code + j, code_e2m1(wide_mul(wide_mul(wide_mul(wide_load(flat + b * ELEMS + j), f), g), h)));
        block->e = lanes.is_zero[b] != 0.0f ? 0 : (uint8_t)((int)lanes.floor_e[b] + (int)best[b] - 1);
        wide_pack_nibbles(block->qs, code, code + 16);
    }
}

static void encode_mxfp4_group(const float *src, uint8_t *dst) { encode_mxfp4_blocks(src, NULL, dst); }
static void encode_mxfp4_group_by(const float *src, const float *importance, uint8_t *dst) { encode_mxfp4_blocks(src, importance, dst); }

static void encode_mxfp4(const float *src, void *dst, int64_t n_elems)
{
    wide_encode_groups(src, dst, n_elems, WIDE * ELEMS, ELEMS, sizeof(apr_block_MXFP4), encode_mxfp4_group);
}

static void encode_mxfp4_by(const float *src, const float *importance, void *dst, int64_t n_elems)
{
    wide_encode_groups_by(src, importance, dst, n_elems, WIDE * ELEMS, ELEMS, sizeof(apr_block_MXFP4), encode_mxfp4_group_by);
}

const apr_host_codecs_table WIDE_NAME(apr_simd_simple) = {
    .codecs =
        {
            [APR_Q4_0] = {.encode = encode_q4_0},
            [APR_Q4_1] = {.encode = encode_q4_1},
            [APR_Q5_0] = {.encode = encode_q5_0},
            [APR_Q5_1] = {.encode = encode_q5_1},
            [APR_Q8_0] = {.encode = encode_q8_0},
            [APR_MXFP4] = {.encode = encode_mxfp4, .encode_by = encode_mxfp4_by},
        },
};
