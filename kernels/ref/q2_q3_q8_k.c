/* q2_q3_q8_k.c - decoders of Q2_K, Q3_K and Q8_K. */
#include "kernels/ref/codecs.h"

enum { ELEMS = 256 };

/* Q2_K and Q3_K store 2-bit codes in the same way: element 128*h + 32*s + l is bits 2s of byte 32*h + l. Sub-blocks are runs of 16. */
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

/* Sixteen 6-bit scales with offset 32 in 12 bytes: scale s has its low nibble in byte s % 8 (low half for s < 8), its upper two bits in
 * bits 2 * (s / 4) of byte 8 + s % 4. A clear bit of hmask subtracts 4 from the code. */
void apr_ref_decode_q3_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q3_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 16; sub++) {
            const int low = block->scales[sub % 8] >> sub / 8 * 4 & 0x0f, high = block->scales[8 + sub % 4] >> sub / 4 * 2 & 3;
            const float scale = d * (float)((low | high << 4) - 32);
            const int half = sub / 8, step = sub % 8 / 2, first = sub % 2 * 16, bit = 4 * half + step;
            float *const y = dst + i + 16 * sub;
            for (int l = 0; l < 16; l++) {
                const int offset = block->hmask[first + l] >> bit & 1 ? 0 : 4;
                y[l] = scale * (float)(code_2_bits(block->qs, half, step, first + l) - offset);
            }
        }
    }
}

void apr_ref_decode_q8_k(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_Q8_K *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = block->d;
        for (int j = 0; j < ELEMS; j++) dst[i + j] = d * (float)block->qs[j];
    }
}
