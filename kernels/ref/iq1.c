/* iq1.c - decoders of IQ1_S and IQ1_M: ternary points of 8 values, shifted up or down by an eighth. */
#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_codebooks.h"

enum { ELEMS = 256 };

static inline void put_iq1(float *restrict y, unsigned point, bool shift_down, float scale)
{
    const float shift = shift_down ? -0.125f : 0.125f;
    for (int k = 0; k < 8; k++) y[k] = scale * ((float)(int)(point >> 2 * k & 3) - 1.0f + shift);
}

/* A sub-block of 32 has 16 bits: three upper index bits for each of its 4 points, a 3-bit scale, and the shift's sign on top. */
void apr_ref_decode_iq1_s(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ1_S *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int g = 0; g < 32; g++) {
            const unsigned word = block->qh[g / 4], index = block->qs[g] | (word >> g % 4 * 3 & 7u) << 8;
            const float scale = d * (float)(2 * (word >> 12 & 7u) + 1);
            put_iq1(dst + i + 8 * g, apr_iq1_grid[index], (word & 0x8000u) != 0, scale);
        }
    }
}

/* The FP16 scale is in the top nibbles of the four scale words, lowest nibble first. Below them a word has four 3-bit scales, one for
 * each 16 elements. Each point has a nibble of qh: three upper index bits, and the shift's sign. */
void apr_ref_decode_iq1_m(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ1_M *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        unsigned half = 0;
        for (int w = 0; w < 4; w++) half |= (unsigned)(block->scales[w] >> 12) << 4 * w;
        const float d = apr_f16_to_f32((uint16_t)half);
        for (int g = 0; g < 32; g++) {
            const unsigned high = block->qh[g / 2] >> g % 2 * 4, index = block->qs[g] | (high & 7u) << 8;
            const float scale = d * (float)(2 * (block->scales[g / 8] >> g % 8 / 2 * 3 & 7) + 1);
            put_iq1(dst + i + 8 * g, apr_iq1_grid[index], (high & 8u) != 0, scale);
        }
    }
}
