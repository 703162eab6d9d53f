/* toy.c - TOY: 32 codes of -7 to 7 and one half scale. */
#include "kernels/ref/codecs.h"

enum { ELEMS = 32 };

void apr_ref_decode_toy(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_TOY *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < ELEMS; j++) dst[i + j] = (float)((block->qs[j / 2] >> 4 * (j % 2) & 15) - 8) * d;
    }
}

void apr_ref_encode_toy(const float *restrict src, void *restrict dst, int64_t n_elems)
{
    apr_block_TOY *block = dst;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        float x[ELEMS], amax = 0.0f;
        for (int j = 0; j < ELEMS; j++) {
            x[j] = apr_clamp_finite(src[i + j], 7.0f * APR_F16_MAX);
            amax = apr_clamp(x[j] < 0.0f ? -x[j] : x[j], amax, FLT_MAX);
        }
        *block = (apr_block_TOY){.d = apr_f32_to_f16(amax / 7.0f)};
        const float d = apr_f16_to_f32(block->d), inverse = d > 0.0f ? 1.0f / d : 0.0f;
        for (int j = 0; j < ELEMS; j++) {
            const int code = (int)apr_round_even(apr_clamp(x[j] * inverse, -7.0f, 7.0f)) + 8;
            block->qs[j / 2] |= (uint8_t)(code << 4 * (j % 2));
        }
    }
}
