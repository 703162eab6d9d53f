/* fp4.c - MXFP4 and NVFP4: 4-bit floats (E2M1) with one shared scale a block. */
#include "kernels/ref/step_ladders.h"

/* E2M1 doubled: 0 .5 1 1.5 2 3 4 6 times two, then the negatives. Code 8 is -0 and reads as 0. */
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

enum {
    MX_ELEMS = 32,
    NV_ELEMS = 64,
    MX_MAX_E = 252, /* 6 * 2^(252-127) is finite; with 253, codes 6 and 7 would be infinite */
};

/* 2^(e-128): half of the stored scale, since the table of values is doubled. 255 (NaN in OCP) is 2^127, as in ggml. */
static float half_scale(unsigned e) { return apr_f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23); }

void apr_ref_decode_mxfp4(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_MXFP4 *block = src;
    for (int64_t i = 0; i < n_elems; i += MX_ELEMS, block++) {
        const float d = half_scale(block->e);
        for (int j = 0; j < 16; j++) dst[i + j] = (float)e2m1_doubled[block->qs[j] & 0x0f] * d;
        for (int j = 0; j < 16; j++) dst[i + 16 + j] = (float)e2m1_doubled[block->qs[j] >> 4] * d;
    }
}

/* Unsigned E4M3, halved because the table is doubled; 0x7f is 0, the top bit is ignored. */
static float nv_scale(uint8_t byte) { return byte == 0x7f ? 0.0f : apr_e4m3_to_f32(byte & 0x7f) * 0.5f; }

void apr_ref_decode_nvfp4(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_NVFP4 *block = src;
    for (int64_t i = 0; i < n_elems; i += NV_ELEMS, block++)
        for (int sub = 0; sub < 4; sub++) {
            const float d = nv_scale(block->d[sub]);
            const uint8_t *const qs = block->qs + 8 * sub;
            float *const y = dst + i + 16 * sub;
            for (int j = 0; j < 8; j++) y[j] = d * (float)e2m1_doubled[qs[j] & 0x0f];
            for (int j = 0; j < 8; j++) y[8 + j] = d * (float)e2m1_doubled[qs[j] >> 4];
        }
}

/* Nearest of 0 1 2 3 4 6 8 12 to a magnitude, ties to the lower one: as a value. */
static inline float nearest_e2m1(float a)
{
    const float below_4 = (a > 0.5f ? 1.0f : 0.0f) + (a > 1.5f ? 1.0f : 0.0f) + (a > 2.5f ? 1.0f : 0.0f) + (a > 3.5f ? 1.0f : 0.0f);
    return below_4 + (a > 5.0f ? 2.0f : 0.0f) + (a > 7.0f ? 2.0f : 0.0f) + (a > 10.0f ? 4.0f : 0.0f);
}

/* The same as an index; the negatives are 8 higher, but -0 is never written. */
static inline uint8_t code_e2m1(float u)
{
    const float a = u < 0.0f ? -u : u;
    const int index = (a > 0.5f) + (a > 1.5f) + (a > 2.5f) + (a > 3.5f) + (a > 5.0f) + (a > 7.0f) + (a > 10.0f);
    return (uint8_t)(index + (u < 0.0f && index != 0 ? 8 : 0));
}

/* Weighted squared error in units of u when one step of the code is `step` (a power of two, so that u / step is exact). */
static float squared_error(const float *restrict u, const float *restrict w, float step)
{
    const float inverse = 1.0f / step;
    float lane[8] = {0};
    for (int j = 0; j < MX_ELEMS; j += 8)
        for (int l = 0; l < 8; l++) {
            const float a = u[j + l] < 0.0f ? -u[j + l] : u[j + l];
            const float err = nearest_e2m1(a * inverse) * step - a;
            lane[l] += w[j + l] * err * err;
        }
    return apr_sum8(lane);
}

/* Scales x by 2^(128 - e), in two steps because the whole factor need not be a float. */
static void scale_block(const float *restrict x, unsigned e, float *restrict u)
{
    const int shift = 128 - (int)e, first = shift / 2, second = shift - first;
    const float f = apr_f32_from_bits((uint32_t)(first + 127) << 23), g = apr_f32_from_bits((uint32_t)(second + 127) << 23);
    for (int j = 0; j < MX_ELEMS; j++) u[j] = x[j] * f * g;
}

void apr_ref_encode_mxfp4(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_mxfp4_by(src, NULL, dst, n_elems); }

/* ggml and OCP use the exponent floor(log2(max)) - 2, which clips values between 6 and 8 steps. This encoder tries it, one below and one
 * above, and keeps the one with the least squared error of the block; of equals the smallest. */
void apr_ref_encode_mxfp4_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    static const float none[MX_ELEMS] = {0.0f};
    static const float steps[3] = {0.5f, 1.0f, 2.0f};
    apr_block_MXFP4 *block = dst;
    float x[MX_ELEMS], u[MX_ELEMS], w[MX_ELEMS];

    for (int64_t i = 0; i < n_elems; i += MX_ELEMS, block++) {
        uint32_t amax_bits = 0;
        apr_block_weights(importance != NULL ? importance + i : none, MX_ELEMS, w);
        for (int j = 0; j < MX_ELEMS; j++) {
            x[j] = apr_clamp_finite(src[i + j], FLT_MAX);
            const uint32_t magnitude = apr_f32_bits(x[j]) & 0x7fffffff;
            amax_bits = magnitude > amax_bits ? magnitude : amax_bits;
        }
        const unsigned exponent = amax_bits >> 23, floor_e = exponent > 2 ? exponent - 2 : 0; /* biased by 127, as e is */
        scale_block(x, floor_e, u);

        int best = -1;
        float least = 0.0f;
        for (int k = 0; k < 3; k++) {
            if (floor_e + (unsigned)k < 1 || floor_e + (unsigned)k - 1 > MX_MAX_E) continue;
            const float err = squared_error(u, w, steps[k]);
            if (best < 0 || err < least) best = k, least = err;
        }
        block->e = amax_bits == 0 ? 0 : (uint8_t)(floor_e + (unsigned)best - 1);
        const float inverse = 1.0f / steps[best];
        for (int j = 0; j < 16; j++) block->qs[j] = (uint8_t)(code_e2m1(u[j] * inverse) | code_e2m1(u[16 + j] * inverse) << 4);
    }
}

/* ---- NVFP4 ---- */

enum { NV_SUB = 16 };

/* The weighted squared error of a sub-block with a scale. */
static float nv_error(const float *restrict x, const float *restrict w, uint8_t scale)
{
    const float d = nv_scale(scale), inverse = 1.0f / d; /* of 2^-10 or more */
    float lane[8] = {0.0f};
    for (int j = 0; j < NV_SUB; j += 8)
        for (int l = 0; l < 8; l++) {
            const float a = x[j + l] < 0.0f ? -x[j + l] : x[j + l], err = nearest_e2m1(a * inverse) * d - a;
            lane[l] += w[j + l] * err * err;
        }
    return apr_sum8(lane);
}

/* The scale with the least error, of those around the one that gives the largest magnitude the code 6; of equals the smallest. Only
 * zeros have scale 0. */
static uint8_t nv_search(const float *restrict x, const float *restrict w)
{
    float amax = 0.0f, least = -1.0f;
    int best = 0;

    for (int j = 0; j < NV_SUB; j++) {
        const float a = x[j] < 0.0f ? -x[j] : x[j];
        amax = a > amax ? a : amax;
    }
    if (!(amax > 0.0f)) return 0;
    const int middle = apr_f32_to_e4m3(amax / 6.0f);
    for (int scale = middle - APR_NVFP4_BELOW; scale <= middle + APR_NVFP4_ABOVE; scale++) {
        if (scale < 1 || scale > APR_NVFP4_LAST) continue;
        const float error = nv_error(x, w, (uint8_t)scale);
        if (least < 0.0f || error < least) least = error, best = scale;
    }
    return (uint8_t)best;
}

void apr_ref_encode_nvfp4_by(const float *restrict src, const float *restrict importance, void *restrict dst, int64_t n_elems)
{
    static const float none[NV_ELEMS] = {0.0f};
    apr_block_NVFP4 *block = dst;
    float x[NV_ELEMS], w[NV_ELEMS];

    for (int64_t i = 0; i < n_elems; i += NV_ELEMS, block++) {
        apr_block_weights(importance != NULL ? importance + i : none, NV_ELEMS, w);
        for (int j = 0; j < NV_ELEMS; j++) x[j] = apr_clamp_finite(src[i + j], 448.0f * 6.0f);
        for (int sub = 0; sub < 4; sub++) {
            const float *const v = x + NV_SUB * sub;
            block->d[sub] = nv_search(v, w + NV_SUB * sub);
            const float d = nv_scale(block->d[sub]), inverse = d > 0.0f ? 1.0f / d : 0.0f;
            for (int j = 0; j < 8; j++) block->qs[8 * sub + j] = (uint8_t)(code_e2m1(v[j] * inverse) | code_e2m1(v[8 + j] * inverse) << 4);
        }
    }
}

void apr_ref_encode_nvfp4(const float *src, void *dst, int64_t n_elems) { apr_ref_encode_nvfp4_by(src, NULL, dst, n_elems); }
