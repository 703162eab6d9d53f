/* iq4.c - decoders of IQ4_NL and IQ4_XS: 4-bit codes that index a table of non-uniform levels. */
#include "kernels/ref/codecs.h"

static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static inline void put_32(const uint8_t *restrict qs, float scale, float *restrict y)
{
    for (int j = 0; j < 16; j++) y[j] = scale * (float)levels[qs[j] & 0x0f];
    for (int j = 0; j < 16; j++) y[16 + j] = scale * (float)levels[qs[j] >> 4];
}

void apr_ref_decode_iq4_nl(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ4_NL *block = src;
    for (int64_t i = 0; i < n_elems; i += 32, block++) put_32(block->qs, apr_f16_to_f32(block->d), dst + i);
}

/* Sub-blocks of 32 have 6-bit scales with offset 32: low nibbles in scales_l, upper two bits in scales_h. */
void apr_ref_decode_iq4_xs(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ4_XS *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const int low = block->scales_l[sub / 2] >> sub % 2 * 4 & 0x0f, high = block->scales_h >> 2 * sub & 3;
            put_32(block->qs + 16 * sub, d * (float)((low | high << 4) - 32), dst + i + 32 * sub);
        }
    }
}
