/* decode_iq.cu - the IQ types: points of a codebook with separate signs, or codes into a table of unequal steps. */
#include "kernels/cuda/codecs/decode.cuh"

/* A copy of the codebooks in device memory. */
#define APR_IQ_TABLE static __device__ const
#include "kernels/ref/iq_codebooks.c"

static __constant__ int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static __constant__ float iq2_levels[4] = {8.0f, 25.0f, 43.0f, 0.0f};
static __constant__ float iq3_xxs_levels[8] = {4.0f, 12.0f, 20.0f, 28.0f, 36.0f, 44.0f, 52.0f, 62.0f};

/* Seven stored signs of eight values; the eighth makes the number of minus signs even. */
static __device__ __forceinline__ unsigned even_signs(unsigned stored) { return stored | (unsigned)(__popc(stored) & 1) << 7; }

static __device__ __forceinline__ float with_sign(float value, unsigned signs, int k) { return signs >> k & 1 ? -value : value; }

static __device__ __forceinline__ float iq1_value(unsigned point, int k, bool shift_down, float scale)
{
    return scale * ((float)(int)(point >> 2 * k & 3) - 1.0f + (shift_down ? -0.125f : 0.125f));
}

VALUE_AT(IQ1_S)
{
    const int g = j / 8;
    const unsigned word = block.qh[g / 4], index = block.qs[g] | (word >> g % 4 * 3 & 7u) << 8;
    return iq1_value(apr_iq1_grid[index], j % 8, (word & 0x8000u) != 0, apr_f16_to_f32(block.d) * (float)(2 * (word >> 12 & 7u) + 1));
}

VALUE_AT(IQ1_M)
{
    const int g = j / 8;
    unsigned half = 0;
    for (int w = 0; w < 4; w++) half |= (unsigned)(block.scales[w] >> 12) << 4 * w;
    const unsigned high = block.qh[g / 2] >> g % 2 * 4, index = block.qs[g] | (high & 7u) << 8;
    const float scale = apr_f16_to_f32((uint16_t)half) * (float)(2 * (block.scales[g / 8] >> g % 8 / 2 * 3 & 7) + 1);
    return iq1_value(apr_iq1_grid[index], j % 8, (high & 8u) != 0, scale);
}

/* The order of the multiplications is part of the definition. */
static __device__ __forceinline__ float iq2_value(unsigned point, int k, unsigned signs, uint16_t d, unsigned scale)
{
    return with_sign(apr_f16_to_f32(d) * (0.5f + (float)scale) * 0.25f * iq2_levels[point >> 2 * k & 3], signs, k);
}

VALUE_AT(IQ2_XXS)
{
    const int sub = j / 32, g = j / 8 % 4;
    const uint32_t points = block.qs[sub][0], signs = block.qs[sub][1];
    return iq2_value(apr_iq2_xxs_grid[points >> 8 * g & 0xff], j % 8, even_signs(signs >> 7 * g & 0x7f), block.d, signs >> 28);
}

VALUE_AT(IQ2_XS)
{
    const int g = j / 8;
    const unsigned word = block.qs[g];
    return iq2_value(apr_iq2_xs_grid[word & 0x1ff], j % 8, even_signs(word >> 9), block.d, block.scales[g / 4] >> g % 4 / 2 * 4 & 0x0f);
}

VALUE_AT(IQ2_S)
{
    const int g = j / 8;
    const unsigned index = block.qs[g] | (block.qh[g / 4] >> g % 4 * 2 & 3u) << 8;
    return iq2_value(apr_iq2_s_grid[index], j % 8, block.signs[g], block.d, block.scales[g / 4] >> g % 4 / 2 * 4 & 0x0f);
}

VALUE_AT(IQ3_XXS)
{
    const int g = j / 4, k = j % 4;
    const uint32_t word = block.scales_signs[g / 8];
    const float scale = apr_f16_to_f32(block.d) * (0.5f + (float)(word >> 28)) * 0.5f;
    const unsigned signs = even_signs(word >> g % 8 / 2 * 7 & 0x7f) >> g % 2 * 4;
    return with_sign(scale * iq3_xxs_levels[apr_iq3_xxs_grid[block.qs[g]] >> 4 * k & 7], signs, k);
}

VALUE_AT(IQ3_S)
{
    const int g = j / 4, k = j % 4;
    const unsigned index = block.qs[g] | (block.qh[g / 8] >> g % 8 & 1u) << 8;
    const float scale = apr_f16_to_f32(block.d) * (float)(1 + 2 * (block.scales[g / 16] >> g % 16 / 8 * 4 & 0x0f));
    const float level = (float)(2 * (apr_iq3_s_grid[index] >> 4 * k & 7) + 1); /* 1 3 5 ... 15 */
    return with_sign(scale * level, (unsigned)(block.signs[g / 2] >> g % 2 * 4), k);
}

VALUE_AT(IQ4_NL) { return apr_f16_to_f32(block.d) * (float)iq4_levels[block.qs[j & 15] >> (j >> 4) * 4 & 0x0f]; }

VALUE_AT(IQ4_XS)
{
    const int sub = j / 32, l = j % 32;
    const int low = block.scales_l[sub / 2] >> sub % 2 * 4 & 0x0f, high = block.scales_h >> 2 * sub & 3;
    const float scale = apr_f16_to_f32(block.d) * (float)((low | high << 4) - 32);
    return scale * (float)iq4_levels[block.qs[16 * sub + (l & 15)] >> (l >> 4) * 4 & 0x0f];
}

launch_decode_fn decoder_of_iq(apr_dtype dtype)
{
    switch (dtype) {
        DECODER_CASE(IQ1_S)
        DECODER_CASE(IQ1_M)
        DECODER_CASE(IQ2_XXS)
        DECODER_CASE(IQ2_XS)
        DECODER_CASE(IQ2_S)
        DECODER_CASE(IQ3_XXS)
        DECODER_CASE(IQ3_S)
        DECODER_CASE(IQ4_NL)
        DECODER_CASE(IQ4_XS)
    default: return nullptr;
    }
}
