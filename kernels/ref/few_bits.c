/* few_bits.c - decoders of Q1_0, Q2_0 and the ternary TQ1_0, TQ2_0: one FP16 scale, and codes of one or two bits. */
#include "kernels/ref/codecs.h"

void apr_ref_decode_q1_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q1_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 128, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < 128; j++) dst[i + j] = block->qs[j / 8] >> j % 8 & 1 ? d : -d;
    }
}

void apr_ref_decode_q2_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q2_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 64, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int j = 0; j < 64; j++) dst[i + j] = (float)((block->qs[j / 4] >> j % 4 * 2 & 3) - 1) * d;
    }
}

/* Element 128*h + 32*s + l is bits 2s of byte 32*h + l, minus 1. */
void apr_ref_decode_tq2_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_TQ2_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int run = 0; run < 8; run++)
            for (int l = 0; l < 32; l++) dst[i + 32 * run + l] = (float)((block->qs[run / 4 * 32 + l] >> run % 4 * 2 & 3) - 1) * d;
    }
}

/* A byte is a fraction of 243ths, rounded up to 256ths. Multiplied by 3^n (modulo 256), its base-3 digit n is the integer part of the
 * byte times 3 / 256. `width` adjacent bytes give n_digits runs of `width` elements. */
static float *decode_trits(const uint8_t *restrict bytes, int width, int n_digits, float d, float *restrict y)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int n = 0; n < n_digits; n++, y += width)
        for (int l = 0; l < width; l++) {
            const uint8_t shifted = (uint8_t)(bytes[l] * power[n]);
            y[l] = (float)((shifted * 3 >> 8) - 1) * d;
        }
    return y;
}

void apr_ref_decode_tq1_0(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_TQ1_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        float *y = dst + i;
        y = decode_trits(block->qs, 32, 5, d, y);
        y = decode_trits(block->qs + 32, 16, 5, d, y);
        decode_trits(block->qh, 4, 4, d, y);
    }
}
