/* iq2_iq3.c - decoders of the 2- and 3-bit lattice types: a point of a codebook, separate signs, a scale a sub-block.
 *
 * The order of the multiplications is part of the definition: (d * (0.5 + scale) * 0.25) * magnitude, sign last. */
#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_codebooks.h"

enum { ELEMS = 256 };

/* Seven stored signs of eight values; the eighth makes the number of minus signs even. */
static inline unsigned even_signs(unsigned stored) { return stored | (unsigned)__builtin_parity(stored) << 7; }

/* Eight values of an IQ2 point; bit k of `signs` negates value k. */
static inline void put_iq2(float *restrict y, unsigned point, unsigned signs, float scale)
{
    static const float level[4] = {8.0f, 25.0f, 43.0f, 0.0f};
    for (int k = 0; k < 8; k++) {
        const float value = scale * level[point >> 2 * k & 3];
        y[k] = signs >> k & 1 ? -value : value;
    }
}

/* Four values from 4-bit indexes. */
static inline void put_iq3(float *restrict y, unsigned point, const float *restrict level, unsigned signs, float scale)
{
    for (int k = 0; k < 4; k++) {
        const float value = scale * level[point >> 4 * k & 7];
        y[k] = signs >> k & 1 ? -value : value;
    }
}

static inline float iq2_scale(float d, unsigned scale) { return d * (0.5f + (float)scale) * 0.25f; }

/* A sub-block of 32: four indexes in one word; four times 7 signs and a 4-bit scale on top in the other. */
void apr_ref_decode_iq2_xxs(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ2_XXS *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const uint32_t points = block->qs[sub][0], signs = block->qs[sub][1];
            const float scale = iq2_scale(d, signs >> 28);
            for (int g = 0; g < 4; g++)
                put_iq2(dst + i + 32 * sub + 8 * g, apr_iq2_xxs_grid[points >> 8 * g & 0xff], even_signs(signs >> 7 * g & 0x7f), scale);
        }
    }
}

/* A group of 8: a 9-bit index and 7 signs in one word. Scales: a nibble for each 16. */
void apr_ref_decode_iq2_xs(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ2_XS *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int g = 0; g < 32; g++) {
            const unsigned word = block->qs[g];
            const float scale = iq2_scale(d, block->scales[g / 4] >> g % 4 / 2 * 4 & 0x0f);
            put_iq2(dst + i + 8 * g, apr_iq2_xs_grid[word & 0x1ff], even_signs(word >> 9), scale);
        }
    }
}

/* A group of 8: 8 bits of index in qs, two more in qh, all 8 signs in a byte. Scales: a nibble for each 16. */
void apr_ref_decode_iq2_s(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const apr_block_IQ2_S *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int g = 0; g < 32; g++) {
            const unsigned index = block->qs[g] | (block->qh[g / 4] >> g % 4 * 2 & 3u) << 8;
            const float scale = iq2_scale(d, block->scales[g / 4] >> g % 4 / 2 * 4 & 0x0f);
            put_iq2(dst + i + 8 * g, apr_iq2_s_grid[index], block->signs[g], scale);
        }
    }
}

/* As IQ2_XXS with eight points of 4 values: first the indexes of the whole block, then the words of signs and scales. */
void apr_ref_decode_iq3_xxs(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    static const float level[8] = {4.0f, 12.0f, 20.0f, 28.0f, 36.0f, 44.0f, 52.0f, 62.0f};
    const apr_block_IQ3_XXS *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int g = 0; g < 64; g++) {
            const uint32_t word = block->scales_signs[g / 8];
            const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
            const unsigned signs = even_signs(word >> g % 8 / 2 * 7 & 0x7f) >> g % 2 * 4;
            put_iq3(dst + i + 4 * g, apr_iq3_xxs_grid[block->qs[g]], level, signs, scale);
        }
    }
}

/* Points of 4 values with a ninth index bit in qh, signs as bits, a scale nibble for each 32: d * (1 + 2 * scale). */
void apr_ref_decode_iq3_s(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    static const float level[8] = {1.0f, 3.0f, 5.0f, 7.0f, 9.0f, 11.0f, 13.0f, 15.0f};
    const apr_block_IQ3_S *block = src;
    for (int64_t i = 0; i < n_elems; i += ELEMS, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int g = 0; g < 64; g++) {
            const unsigned index = block->qs[g] | (block->qh[g / 8] >> g % 8 & 1u) << 8;
            const float scale = d * (float)(1 + 2 * (block->scales[g / 16] >> g % 16 / 8 * 4 & 0x0f));
            put_iq3(dst + i + 4 * g, apr_iq3_s_grid[index], level, block->signs[g / 2] >> g % 2 * 4, scale);
        }
    }
}
