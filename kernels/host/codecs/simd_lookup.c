/* simd_lookup.c - decoders of packed codes by table lookup, eight values at a time: nibbles (IQ4, FP4), codebook points (IQ1 to IQ3),
 * single bits and pairs of bits. All levels with AVX2 use vectors of eight, because unpacking the codes is what costs. Other CPUs use
 * the reference's decoders. */
#include "kernels/host/codecs/simd.h"
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_codebooks.h"

#ifdef __AVX2__

/* Lane k gets the word shifted right by k * width. */
WIDE_INLINE __m256i spread(uint32_t word, int width)
{
    const __m256i shifts = _mm256_mullo_epi32(_mm256_set1_epi32(width), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_srlv_epi32(_mm256_set1_epi32((int)word), shifts);
}

WIDE_INLINE __m256i low_bits(__m256i a, int mask) { return _mm256_and_si256(a, _mm256_set1_epi32(mask)); }

/* Bit k negates lane k. */
WIDE_INLINE __m256 negate(__m256 a, uint32_t signs)
{
    const __m256i to_top = _mm256_sllv_epi32(_mm256_set1_epi32((int)signs), _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
    return _mm256_xor_ps(a, _mm256_and_ps(_mm256_castsi256_ps(to_top), _mm256_set1_ps(-0.0f)));
}

/* Eight int8 as floats. */
WIDE_INLINE __m256 floats_of(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

WIDE_INLINE __m128i load_16(const void *p) { return _mm_loadu_si128(p); }
WIDE_INLINE __m128i low_nibbles(__m128i a) { return _mm_and_si128(a, _mm_set1_epi8(0x0f)); }
WIDE_INLINE __m128i high_nibbles(__m128i a) { return low_nibbles(_mm_srli_epi16(a, 4)); }

/* Sixteen int8, times a scale. */
WIDE_INLINE void store_scaled(float *y, __m128i bytes, __m256 scale)
{
    _mm256_storeu_ps(y, _mm256_mul_ps(floats_of(bytes), scale));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(floats_of(_mm_srli_si128(bytes, 8)), scale));
}

/* ---- levels of a table ---- */

/* E2M1 doubled; code 8 is -0 and reads as 0. */
WIDE_INLINE __m128i e2m1_doubled(void) { return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12); }
WIDE_INLINE __m128i iq4_levels(void) { return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113); }

/* 32 values from 16 bytes: the low nibbles, then the high ones. */
WIDE_INLINE void store_levels(float *y, const uint8_t *qs, __m128i levels, float scale)
{
    const __m128i bytes = load_16(qs);
    const __m256 factor = _mm256_set1_ps(scale);
    store_scaled(y, _mm_shuffle_epi8(levels, low_nibbles(bytes)), factor);
    store_scaled(y + 16, _mm_shuffle_epi8(levels, high_nibbles(bytes)), factor);
}

static void decode_mxfp4(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_MXFP4 *block = src;
    for (int64_t i = 0; i < n_elems; i += 32, block++) { /* 2^(e-128): half of the stored scale, because the levels are doubled */
        const unsigned e = block->e;
        store_levels(dst + i, block->qs, e2m1_doubled(), apr_f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23));
    }
}

/* Eight bytes are 16 values: the low nibbles, then the high ones. */
static void decode_nvfp4(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_NVFP4 *block = src;
    for (int64_t i = 0; i < n_elems; i += 64, block++)
        for (int pair = 0; pair < 2; pair++) {
            const __m128i bytes = load_16(block->qs + 16 * pair), low = low_nibbles(bytes), high = high_nibbles(bytes);
            for (int sub = 0; sub < 2; sub++) {
                const uint8_t scale = block->d[2 * pair + sub];
                const float d = scale == 0x7f ? 0.0f : apr_e4m3_to_f32(scale & 0x7f) * 0.5f;
                const __m128i codes = sub == 0 ? _mm_unpacklo_epi64(low, high) : _mm_unpackhi_epi64(low, high);
                store_scaled(dst + i + 32 * pair + 16 * sub, _mm_shuffle_epi8(e2m1_doubled(), codes), _mm256_set1_ps(d));
            }
        }
}

static void decode_iq4_nl(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_IQ4_NL *block = src;
    for (int64_t i = 0; i < n_elems; i += 32, block++) store_levels(dst + i, block->qs, iq4_levels(), apr_f16_to_f32(block->d));
}

static void decode_iq4_xs(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_IQ4_XS *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const int low = block->scales_l[sub / 2] >> sub % 2 * 4 & 0x0f, high = block->scales_h >> 2 * sub & 3;
            store_levels(dst + i + 32 * sub, block->qs + 16 * sub, iq4_levels(), d * (float)((low | high << 4) - 32));
        }
    }
}

/* ---- nibbles with a fifth bit, bits and pairs of bits ---- */

/* 16 in each byte whose bit of `bits` is set. */
WIDE_INLINE __m128i sixteens(uint32_t bits)
{
    const __m128i of_bytes = _mm_shuffle_epi8(_mm_cvtsi32_si128((int)bits), _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
    const __m128i each = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
    return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(of_bytes, each), each), _mm_set1_epi8(16));
}

static void decode_q5_0(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_Q5_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 32, block++) {
        const __m128i bytes = load_16(block->qs), middle = _mm_set1_epi8(16);
        const __m256 d = _mm256_set1_ps(apr_f16_to_f32(block->d));
        store_scaled(dst + i, _mm_sub_epi8(_mm_or_si128(low_nibbles(bytes), sixteens(block->qh)), middle), d);
        store_scaled(dst + i + 16, _mm_sub_epi8(_mm_or_si128(high_nibbles(bytes), sixteens(block->qh >> 16)), middle), d);
    }
}

/* Values 2k and 2k + 1 in byte k. The tensor's last block may be used in part. */
static void decode_apr_q4(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_APR_Q4 *block = src;
    int64_t i = 0;
    for (; i + 32 <= n_elems; i += 32, block++) {
        const __m128i bytes = load_16(block->qs), low = low_nibbles(bytes), high = high_nibbles(bytes), middle = _mm_set1_epi8(8);
        const __m256 d = _mm256_set1_ps(apr_f16_to_f32(block->d));
        store_scaled(dst + i, _mm_sub_epi8(_mm_unpacklo_epi8(low, high), middle), d);
        store_scaled(dst + i + 16, _mm_sub_epi8(_mm_unpackhi_epi8(low, high), middle), d);
    }
    if (i < n_elems) apr_ref_decode_apr_q4(block, dst + i, n_elems - i);
}

/* Sixteen codes: scale * code + offset, rounded twice. */
WIDE_INLINE void store_with_offset(float *y, __m128i codes, __m256 scale, __m256 offset)
{
    _mm256_storeu_ps(y, _mm256_add_ps(_mm256_mul_ps(floats_of(codes), scale), offset));
    _mm256_storeu_ps(y + 8, _mm256_add_ps(_mm256_mul_ps(floats_of(_mm_srli_si128(codes, 8)), scale), offset));
}

static void decode_q5_1(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_Q5_1 *block = src;
    for (int64_t i = 0; i < n_elems; i += 32, block++) {
        const __m128i bytes = load_16(block->qs);
        const __m256 d = _mm256_set1_ps(apr_f16_to_f32(block->d)), m = _mm256_set1_ps(apr_f16_to_f32(block->m));
        store_with_offset(dst + i, _mm_or_si128(low_nibbles(bytes), sixteens(block->qh)), d, m);
        store_with_offset(dst + i + 16, _mm_or_si128(high_nibbles(bytes), sixteens(block->qh >> 16)), d, m);
    }
}

/* A sub-block of 16 is two bits of each of 16 bytes: element 128*h + 32*s + l is bits 2s of byte 32*h + l. */
static void decode_q2_k(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_Q2_K *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d), dmin = apr_f16_to_f32(block->dmin);
        for (int sub = 0; sub < 16; sub++) {
            const __m256 scale = _mm256_set1_ps(d * (float)(block->scales[sub] & 0x0f));
            const __m256 min = _mm256_set1_ps(dmin * (float)(block->scales[sub] >> 4));
            const __m128i bytes = load_16(block->qs + 32 * (sub / 8) + sub % 2 * 16);
            const __m128i codes = _mm_and_si128(_mm_srli_epi16(bytes, sub % 8 / 2 * 2), _mm_set1_epi8(3));
            float *const y = dst + i + 16 * sub;
            _mm256_storeu_ps(y, _mm256_sub_ps(_mm256_mul_ps(scale, floats_of(codes)), min));
            _mm256_storeu_ps(y + 8, _mm256_sub_ps(_mm256_mul_ps(scale, floats_of(_mm_srli_si128(codes, 8))), min));
        }
    }
}

/* ---- Q4_K and Q6_K: a step of each sub-block, and for Q4_K an offset ---- */

/* The 6-bit scales and minimums of eight sub-blocks (kernels/ref/q4_q5_k.c), as floats times `d` and `dmin`. */
WIDE_INLINE void scale_sub_blocks(const uint8_t bytes[12], float d, float dmin, float step[8], float offset[8])
{
    uint32_t w[3];
    memcpy(w, bytes, sizeof w);
    const uint32_t scale_high = (w[2] & 0x0f0f0f0f) | (w[0] >> 6 & 0x03030303) << 4;
    const uint32_t min_high = (w[2] >> 4 & 0x0f0f0f0f) | (w[1] >> 6 & 0x03030303) << 4;
    const __m128i scales = _mm_cvtsi64_si128((long long)((uint64_t)scale_high << 32 | (w[0] & 0x3f3f3f3f)));
    const __m128i mins = _mm_cvtsi64_si128((long long)((uint64_t)min_high << 32 | (w[1] & 0x3f3f3f3f)));
    _mm256_storeu_ps(step, _mm256_mul_ps(_mm256_set1_ps(d), floats_of(scales)));
    _mm256_storeu_ps(offset, _mm256_mul_ps(_mm256_set1_ps(dmin), floats_of(mins)));
}

/* Sixteen codes: scale * code - offset. Adding -offset would give NaN another sign. */
WIDE_INLINE void store_less_offset(float *y, __m128i codes, __m256 scale, __m256 offset)
{
    _mm256_storeu_ps(y, _mm256_sub_ps(_mm256_mul_ps(floats_of(codes), scale), offset));
    _mm256_storeu_ps(y + 8, _mm256_sub_ps(_mm256_mul_ps(floats_of(_mm_srli_si128(codes, 8)), scale), offset));
}

static void decode_q4_k(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_Q4_K *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        float step[8], offset[8];
        scale_sub_blocks(block->scales, apr_f16_to_f32(block->d), apr_f16_to_f32(block->dmin), step, offset);
        for (int part = 0; part < 8; part++) { /* 16 bytes: codes of an even sub-block, and of the odd one after it */
            const int even = part / 2 * 2;
            const __m128i bytes = load_16(block->qs + 16 * part);
            float *const y = dst + i + 32 * even + part % 2 * 16;
            store_less_offset(y, low_nibbles(bytes), _mm256_set1_ps(step[even]), _mm256_set1_ps(offset[even]));
            store_less_offset(y + 32, high_nibbles(bytes), _mm256_set1_ps(step[even + 1]), _mm256_set1_ps(offset[even + 1]));
        }
    }
}

static void decode_q6_k(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_Q6_K *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 16; sub++) { /* see the reference: nibbles of 16 bytes, and pairs of bits of 16 others */
            const int half = sub / 8, k = sub % 8 / 2, first = sub % 2 * 16;
            const __m128i low = load_16(block->ql + 64 * half + k % 2 * 32 + first), high = load_16(block->qh + 32 * half + first);
            const __m128i pairs = _mm_and_si128(_mm_srl_epi16(high, _mm_cvtsi32_si128(2 * k)), _mm_set1_epi8(3));
            const __m128i codes = _mm_or_si128(k < 2 ? low_nibbles(low) : high_nibbles(low), _mm_slli_epi16(pairs, 4));
            store_scaled(dst + i + 16 * sub, _mm_sub_epi8(codes, _mm_set1_epi8(32)), _mm256_set1_ps(d * (float)block->scales[sub]));
        }
    }
}

static void decode_q1_0(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_Q1_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 128, block++) {
        const __m256 d = _mm256_set1_ps(apr_f16_to_f32(block->d));
        for (int k = 0; k < 16; k++) _mm256_storeu_ps(dst + i + 8 * k, negate(d, ~(uint32_t)block->qs[k]));
    }
}

static void decode_q2_0(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_Q2_0 *block = src;
    for (int64_t i = 0; i < n_elems; i += 64, block++) {
        const __m256 d = _mm256_set1_ps(apr_f16_to_f32(block->d));
        for (int k = 0; k < 8; k++) {
            const uint32_t word = block->qs[2 * k] | (uint32_t)block->qs[2 * k + 1] << 8;
            const __m256i code = _mm256_sub_epi32(low_bits(spread(word, 2), 3), _mm256_set1_epi32(1));
            _mm256_storeu_ps(dst + i + 8 * k, _mm256_mul_ps(_mm256_cvtepi32_ps(code), d));
        }
    }
}

/* ---- points of a codebook: as kernels/ref/iq2_iq3.c and iq1.c ---- */

WIDE_INLINE uint32_t even_signs(uint32_t stored) { return stored | (uint32_t)__builtin_parity(stored) << 7; }

/* The permutation reads the three low bits of a lane, so the four levels are stored twice. */
WIDE_INLINE void store_iq2(float *y, uint32_t point, uint32_t signs, float scale)
{
    const __m256 levels = _mm256_setr_ps(8.0f, 25.0f, 43.0f, 0.0f, 8.0f, 25.0f, 43.0f, 0.0f);
    const __m256 value = _mm256_permutevar8x32_ps(levels, spread(point, 2));
    _mm256_storeu_ps(y, negate(_mm256_mul_ps(_mm256_set1_ps(scale), value), signs));
}

WIDE_INLINE float iq2_scale(float d, uint32_t scale) { return d * (0.5f + (float)scale) * 0.25f; }

static void decode_iq2_xxs(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_IQ2_XXS *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const uint32_t points = block->qs[sub][0], signs = block->qs[sub][1];
            const float scale = iq2_scale(d, signs >> 28);
            for (int g = 0; g < 4; g++)
                store_iq2(dst + i + 32 * sub + 8 * g, apr_iq2_xxs_grid[points >> 8 * g & 0xff], even_signs(signs >> 7 * g & 0x7f), scale);
        }
    }
}

static void decode_iq2_xs(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_IQ2_XS *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int pair = 0; pair < 16; pair++) {
            const float scale = iq2_scale(d, block->scales[pair / 2] >> pair % 2 * 4 & 0x0fu);
            for (int g = 2 * pair; g < 2 * pair + 2; g++)
                store_iq2(dst + i + 8 * g, apr_iq2_xs_grid[block->qs[g] & 0x1ff], even_signs((uint32_t)block->qs[g] >> 9), scale);
        }
    }
}

static void decode_iq2_s(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_IQ2_S *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int pair = 0; pair < 16; pair++) {
            const float scale = iq2_scale(d, block->scales[pair / 2] >> pair % 2 * 4 & 0x0fu);
            for (int g = 2 * pair; g < 2 * pair + 2; g++) {
                const unsigned index = block->qs[g] | (block->qh[g / 4] >> g % 4 * 2 & 3u) << 8;
                store_iq2(dst + i + 8 * g, apr_iq2_s_grid[index], block->signs[g], scale);
            }
        }
    }
}

/* Two points of four values. */
WIDE_INLINE void store_iq3(float *y, uint32_t first, uint32_t second, __m256 levels, uint32_t signs, float scale)
{
    const __m256 value = _mm256_permutevar8x32_ps(levels, spread(first | second << 16, 4));
    _mm256_storeu_ps(y, negate(_mm256_mul_ps(_mm256_set1_ps(scale), value), signs));
}

static void decode_iq3_xxs(const void *src, float *dst, int64_t n_elems)
{
    const __m256 levels = _mm256_setr_ps(4.0f, 12.0f, 20.0f, 28.0f, 36.0f, 44.0f, 52.0f, 62.0f);
    const apr_block_IQ3_XXS *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const uint32_t word = block->scales_signs[sub];
            const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
            const uint8_t *const qs = block->qs + 8 * sub;
            for (int g = 0; g < 4; g++)
                store_iq3(dst + i + 32 * sub + 8 * g, apr_iq3_xxs_grid[qs[2 * g]], apr_iq3_xxs_grid[qs[2 * g + 1]], levels,
                          even_signs(word >> 7 * g & 0x7f), scale);
        }
    }
}

static void decode_iq3_s(const void *src, float *dst, int64_t n_elems)
{
    const __m256 levels = _mm256_setr_ps(1.0f, 3.0f, 5.0f, 7.0f, 9.0f, 11.0f, 13.0f, 15.0f);
    const apr_block_IQ3_S *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const float scale = d * (float)(1 + 2 * (block->scales[sub / 2] >> sub % 2 * 4 & 0x0f));
            const uint8_t *const qs = block->qs + 8 * sub;
            const unsigned ninth = (unsigned)block->qh[sub] << 8;
            for (int g = 0; g < 4; g++)
                store_iq3(dst + i + 32 * sub + 8 * g, apr_iq3_s_grid[qs[2 * g] | (ninth >> 2 * g & 0x100u)],
                          apr_iq3_s_grid[qs[2 * g + 1] | (ninth >> (2 * g + 1) & 0x100u)], levels, block->signs[4 * sub + g], scale);
        }
    }
}

WIDE_INLINE void store_iq1(float *y, uint32_t point, bool shift_down, float scale)
{
    const __m256 digit = _mm256_cvtepi32_ps(low_bits(spread(point, 2), 3)), shift = _mm256_set1_ps(shift_down ? -1.125f : -0.875f);
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_add_ps(digit, shift)));
}

static void decode_iq1_s(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_IQ1_S *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        const float d = apr_f16_to_f32(block->d);
        for (int sub = 0; sub < 8; sub++) {
            const unsigned word = block->qh[sub];
            const float scale = d * (float)(2 * (word >> 12 & 7u) + 1);
            for (int g = 0; g < 4; g++)
                store_iq1(dst + i + 32 * sub + 8 * g, apr_iq1_grid[block->qs[4 * sub + g] | (word >> 3 * g & 7u) << 8],
                          (word & 0x8000u) != 0, scale);
        }
    }
}

static void decode_iq1_m(const void *src, float *dst, int64_t n_elems)
{
    const apr_block_IQ1_M *block = src;
    for (int64_t i = 0; i < n_elems; i += 256, block++) {
        unsigned half = 0;
        for (int w = 0; w < 4; w++) half |= (unsigned)(block->scales[w] >> 12) << 4 * w;
        const float d = apr_f16_to_f32((uint16_t)half);
        for (int pair = 0; pair < 16; pair++) {
            const float scale = d * (float)(2 * (block->scales[pair / 4] >> pair % 4 * 3 & 7) + 1);
            for (int g = 0; g < 2; g++) {
                const unsigned high = block->qh[pair] >> 4 * g;
                store_iq1(dst + i + 16 * pair + 8 * g, apr_iq1_grid[block->qs[2 * pair + g] | (high & 7u) << 8], (high & 8u) != 0, scale);
            }
        }
    }
}

const apr_host_codecs_table WIDE_NAME(apr_simd_lookup) = {
    .codecs =
        {
            [APR_MXFP4] = {.decode = decode_mxfp4},     [APR_NVFP4] = {.decode = decode_nvfp4},   [APR_IQ4_NL] = {.decode = decode_iq4_nl},
            [APR_IQ4_XS] = {.decode = decode_iq4_xs},   [APR_Q5_0] = {.decode = decode_q5_0},     [APR_Q5_1] = {.decode = decode_q5_1},
            [APR_Q2_K] = {.decode = decode_q2_k},       [APR_Q4_K] = {.decode = decode_q4_k},     [APR_Q6_K] = {.decode = decode_q6_k},
            [APR_Q1_0] = {.decode = decode_q1_0},       [APR_Q2_0] = {.decode = decode_q2_0},     [APR_APR_Q4] = {.decode = decode_apr_q4},
            [APR_IQ2_XXS] = {.decode = decode_iq2_xxs}, [APR_IQ2_XS] = {.decode = decode_iq2_xs}, [APR_IQ2_S] = {.decode = decode_iq2_s},
            [APR_IQ3_XXS] = {.decode = decode_iq3_xxs}, [APR_IQ3_S] = {.decode = decode_iq3_s},   [APR_IQ1_S] = {.decode = decode_iq1_s},
            [APR_IQ1_M] = {.decode = decode_iq1_m},
        },
};

#else

const apr_host_codecs_table WIDE_NAME(apr_simd_lookup) = {0};

#endif
