/* product_k.c - products of Q4_K, Q5_K and Q6_K rows and rounded inputs. kernels/ref describes the layouts. */
#include "kernels/host/products/product_rows.h"

/* Scales and minimums have six bits each (kernels/ref/q4_q5_k.c has the map), in three words after d and d_min: the first four are
 * stored directly, the others as nibbles with their upper two bits elsewhere. The groups of the lanes are in the sub-blocks 0 1 4 5 0 1
 * 4 5 2 3 6 7 2 3 6 7. */
#ifdef __AVX2__

/* Returns scales 0 to 7, then minimums 0 to 7, as bytes. */
VEC_INLINE __m128i unpack_scales(const uint8_t *tile)
{
    const __m128i head = _mm_loadu_si128((const void *)tile), four = _mm_setr_epi32(0, 0, 0, 4);
    const __m128i lower = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f),
                  upper = _mm_setr_epi32(0, 0x30303030, 0, 0x30303030);
    const __m128i acbc = _mm_srlv_epi32(_mm_shuffle_epi32(head, _MM_SHUFFLE(3, 2, 3, 1)), four);
    const __m128i aabb = _mm_srli_epi32(_mm_shuffle_epi32(head, _MM_SHUFFLE(2, 2, 1, 1)), 2);
    return _mm_or_si128(_mm_and_si128(acbc, lower), _mm_and_si128(aabb, upper));
}

/* Multiplies eight bytes, those of the sub-blocks 0 1 4 5 2 3 6 7, by `by`, and spreads them to the lanes. */
VEC_INLINE void spread_bytes(__m128i bytes, __m256 by, vec_floats out[VEC_PARTS])
{
    const __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), by);
#ifdef __AVX512BW__
    out[0] = (vec_floats)_mm512_shuffle_f32x4(_mm512_castps256_ps512(y), _mm512_castps256_ps512(y), 0x50);
#else
    out[0] = (vec_floats)_mm256_permute2f128_ps(y, y, 0x00);
    out[1] = (vec_floats)_mm256_permute2f128_ps(y, y, 0x11);
#endif
}

VEC_INLINE void scales_q4_k(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    const __m128 both = _mm_xor_ps(_mm_cvtph_ps(_mm_cvtsi32_si128((int)apr_load_le32(tile))), _mm_setr_ps(0.0f, -0.0f, 0.0f, 0.0f));
    const __m256 d = _mm256_broadcastss_ps(both), minus_d_min = _mm256_broadcastss_ps(_mm_movehdup_ps(both));
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    const __m128i bytes = _mm_shuffle_epi8(unpack_scales(tile), order);

    spread_bytes(bytes, d, scale);
    spread_bytes(_mm_unpackhi_epi64(bytes, bytes), minus_d_min, minimum);
}

#else

VEC_INLINE void scales_q4_k(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    static const int32_t sub_blocks[16] = {0, 1, 4, 5, 0, 1, 4, 5, 2, 3, 6, 7, 2, 3, 6, 7};
    const uint32_t a = apr_load_le32(tile + 4), b = apr_load_le32(tile + 8), c = apr_load_le32(tile + 12);
    const uint32_t upper_scales = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030), upper_minimums = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    eight_floats scales, minimums;

    eight_bytes((uint64_t)upper_scales << 32 | (a & 0x3f3f3f3f), &scales);
    eight_bytes((uint64_t)upper_minimums << 32 | (b & 0x3f3f3f3f), &minimums);
    scales *= load_f16(tile);
    minimums *= -load_f16(tile + 2);
    vec_spread(&scales, sub_blocks, scale);
    vec_spread(&minimums, sub_blocks, minimum);
}

#endif

VEC_INLINE void codes_q4_k(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int half = 0; half < 2; half++) {
        const vec_words z = vec_load(tile + 16 + 64 * half + part * VEC_BYTES), upper = z >> 8;
        even[2 * half] = z & 0x000f;
        odd[2 * half] = upper & 0x000f;
        even[2 * half + 1] = z >> 4 & 0x000f;
        odd[2 * half + 1] = upper >> 4;
    }
}

/* The fifth bit of sub-block s of 8 is bit s of qh's bytes. */
VEC_INLINE void codes_q5_k(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    const vec_words fifths = vec_twice(tile + 16, 2, part), fifth[4] = {fifths << 4, fifths << 3, fifths, fifths >> 1};
    for (int half = 0; half < 2; half++) {
        const vec_words z = vec_load(tile + 48 + 64 * half + part * VEC_BYTES);
        split_bytes((z & 0x0f0f) | (fifth[2 * half] & 0x1010), &even[2 * half], &odd[2 * half]);
        split_bytes((z >> 4 & 0x0f0f) | (fifth[2 * half + 1] & 0x1010), &even[2 * half + 1], &odd[2 * half + 1]);
    }
}

VEC_INLINE void scales_q6_k(const uint8_t *tile, vec_floats scale[VEC_PARTS], vec_floats minimum[VEC_PARTS])
{
    const float d = load_f16(tile + 208);
    (void)minimum;
    vec_from_signed_bytes(tile + 192, apr_product_group[APR_ORDER_PLAIN], scale);
    for (int p = 0; p < VEC_PARTS; p++) scale[p] *= d;
}

/* For each 128 numbers: 64 bytes of nibbles, and 32 bytes with the upper two bits. */
VEC_INLINE void codes_q6_k(const uint8_t *tile, int part, vec_words even[4], vec_words odd[4])
{
    for (int half = 0; half < 2; half++) {
        const vec_words z = vec_load(tile + 64 * half + part * VEC_BYTES), upper = vec_twice(tile + 128 + 32 * half, 2, part);
        split_bytes((z & 0x0f0f) | (upper << 4 & 0x3030), &even[2 * half], &odd[2 * half]);
        split_bytes((z >> 4 & 0x0f0f) | (upper & 0x3030), &even[2 * half + 1], &odd[2 * half + 1]);
    }
}

PRODUCT(q4_k, 144, 1, 0, true, scales_q4_k, codes_q4_k)
PRODUCT(q5_k, 176, 1, 0, true, scales_q4_k, codes_q5_k)
PRODUCT(q6_k, 210, 1, 32, false, scales_q6_k, codes_q6_k)
