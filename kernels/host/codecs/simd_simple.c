/* simd_simple.c - Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 as kernels/ref/q_simple.c encodes them, one block a lane. */
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
    void WIDE_NAME(apr_encode_##name)(const float *src, void *dst, int64_t n_elems)                               \
    {                                                                                                             \
        wide_encode_groups(src, dst, n_elems, WIDE *ELEMS, ELEMS, sizeof(apr_block_##id), encode_##name##_group); \
    }
ENCODER(Q4_0, q4_0)
ENCODER(Q4_1, q4_1)
ENCODER(Q5_0, q5_0)
ENCODER(Q5_1, q5_1)
ENCODER(Q8_0, q8_0)
