/* q_simple.c - Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1: 32 codes and one scale, encoded as ggml encodes them, byte for byte.
 *
 * ggml chooses codes with the scale before it is rounded to FP16; this does the same, for the same bytes. Values too large for an FP16
 * scale are clamped first, so that a scale is never infinite. */
#include "kernels/ref/codecs.h"

enum { ELEMS = 32 };

void apr_ref_decode_q4_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q4_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < 16; j++) dst[i + j] = (float)((block->qs[j] & 0x0f) - 8) * d;
        for (int j = 0; j < 16; j++) dst[i + 16 + j] = (float)((block->qs[j] >> 4) - 8) * d;
    }
}

void apr_ref_decode_q4_1(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q4_1 *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), m = apr_f16_to_f32(block->m);
        for (int j = 0; j < 16; j++) dst[i + j] = (float)(block->qs[j] & 0x0f) * d + m;
        for (int j = 0; j < 16; j++) dst[i + 16 + j] = (float)(block->qs[j] >> 4) * d + m;
    }
}

/* Bit j of qh is the fifth bit of code j. */
static void unpack_5_bits(const uint8_t *restrict qs, uint32_t qh, uint8_t *restrict code)
{
    for (int j = 0; j < 16; j++) code[j] = (uint8_t)((qs[j] & 0x0f) | (qh >> j & 1) << 4);
    for (int j = 0; j < 16; j++) code[16 + j] = (uint8_t)(qs[j] >> 4 | (qh >> (16 + j) & 1) << 4);
}

void apr_ref_decode_q5_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q5_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        uint8_t code[ELEMS];
        unpack_5_bits(block->qs, block->qh, code);
        for (int j = 0; j < ELEMS; j++) dst[i + j] = (float)(code[j] - 16) * d;
    }
}

void apr_ref_decode_q5_1(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q5_1 *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d), m = apr_f16_to_f32(block->m);
        uint8_t code[ELEMS];
        unpack_5_bits(block->qs, block->qh, code);
        for (int j = 0; j < ELEMS; j++) dst[i + j] = (float)code[j] * d + m;
    }
}

void apr_ref_decode_q8_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q8_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < ELEMS; j++) dst[i + j] = (float)block->qs[j] * d;
    }
}

void apr_ref_decode_q8_1(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q8_1 *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < ELEMS; j++) dst[i + j] = (float)block->qs[j] * d;
    }
}

/* The value with the largest magnitude (the first of equals), sign kept. */
static float signed_extreme(const float *x)
{
    float amax = 0.0f, extreme = 0.0f;
    for (int j = 0; j < ELEMS; j++) {
        const float magnitude = x[j] < 0.0f ? -x[j] : x[j];
        if (magnitude > amax) amax = magnitude, extreme = x[j];
    }
    return extreme;
}

static void tame_block(const float *restrict src, float *restrict x, float limit)
{
    for (int j = 0; j < ELEMS; j++) x[j] = apr_clamp_finite(src[j], limit);
}

/* A block of zeros has no scale, and 1 / d overflows for a d below 2^-127, which is 0 in FP16 anyway. */
static float inverse(float d) { return d > 0x1p-126f || d < -0x1p-126f ? 1.0f / d : 0.0f; }

static void pack_5_bits(const uint8_t *restrict code, uint8_t *restrict qs, uint32_t *restrict qh)
{
    uint32_t high = 0;
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((code[j] & 0x0f) | (code[16 + j] & 0x0f) << 4);
    for (int j = 0; j < ELEMS; j++) high |= (uint32_t)(code[j] >> 4) << j;
    *qh = high;
}

/* Symmetric: the extreme value gets code 0, d = extreme / -half. code = trunc(x / d + half + 0.5), clamped. */
static float symmetric_codes(const float *restrict src, float half, uint8_t *restrict code)
{
    float x[ELEMS];
    tame_block(src, x, APR_F16_MAX * half);
    const float d = signed_extreme(x) / -half, id = inverse(d);
    for (int j = 0; j < ELEMS; j++) code[j] = (uint8_t)apr_clamp(x[j] * id + (half + 0.5f), 0.0f, 2.0f * half - 1.0f);
    return d;
}

void apr_ref_encode_q4_0(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q4_0 *block = dst;
    uint8_t code[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        block->d = apr_f32_to_f16(symmetric_codes(src + i, 8.0f, code));
        for (int j = 0; j < 16; j++) block->qs[j] = (uint8_t)(code[j] | code[16 + j] << 4);
    }
}

void apr_ref_encode_q5_0(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q5_0 *block = dst;
    uint8_t code[ELEMS];
    uint32_t high;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        block->d = apr_f32_to_f16(symmetric_codes(src + i, 16.0f, code));
        pack_5_bits(code, block->qs, &high);
        block->qh = high;
    }
}

/* With minimum: m = min, d = (max - min) / steps, code = trunc((x - m) / d + 0.5), clamped. The bound on x keeps d in FP16: at worst
 * (steps - 1 + 1) * 65504 above the least m. */
static void affine_codes(const float *restrict src, float steps, float *d, float *m, uint8_t *restrict code)
{
    float x[ELEMS], low = FLT_MAX, high = -FLT_MAX;
    tame_block(src, x, APR_F16_MAX * (steps - 1.0f));
    for (int j = 0; j < ELEMS; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    low = apr_clamp(low, -APR_F16_MAX, APR_F16_MAX);
    *m = low;
    *d = high > low ? (high - low) / steps : 0.0f;
    const float id = inverse(*d);
    for (int j = 0; j < ELEMS; j++) code[j] = (uint8_t)apr_clamp((x[j] - low) * id + 0.5f, 0.0f, steps);
}

void apr_ref_encode_q4_1(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q4_1 *block = dst;
    uint8_t code[ELEMS];
    float d, m;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        affine_codes(src + i, 15.0f, &d, &m, code);
        block->d = apr_f32_to_f16(d);
        block->m = apr_f32_to_f16(m);
        for (int j = 0; j < 16; j++) block->qs[j] = (uint8_t)(code[j] | code[16 + j] << 4);
    }
}

void apr_ref_encode_q5_1(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q5_1 *block = dst;
    uint8_t code[ELEMS];
    uint32_t high;
    float d, m;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        affine_codes(src + i, 31.0f, &d, &m, code);
        block->d = apr_f32_to_f16(d);
        block->m = apr_f32_to_f16(m);
        pack_5_bits(code, block->qs, &high);
        block->qh = high;
    }
}

/* d = max|x| / 127, code = x / d rounded to nearest, ties away from zero. Truncating and comparing the rest is exact; adding 0.5 first
 * is not, since that sum is rounded also. */
void apr_ref_encode_q8_0(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_Q8_0 *block = dst;
    float x[ELEMS];
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        tame_block(src + i, x, APR_F16_MAX * 127.0f);
        const float extreme = signed_extreme(x), d = (extreme < 0.0f ? -extreme : extreme) / 127.0f, id = inverse(d);
        block->d = apr_f32_to_f16(d);
        for (int j = 0; j < ELEMS; j++) {
            const float t = x[j] * id, whole = (float)(int)t, rest = t - whole;
            block->qs[j] = (int8_t)(whole + (rest >= 0.5f ? 1.0f : 0.0f) - (rest <= -0.5f ? 1.0f : 0.0f));
        }
    }
}
