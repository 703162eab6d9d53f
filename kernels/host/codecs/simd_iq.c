/* simd_iq.c - encoders of IQ1, IQ2 and IQ3: the reference's search (kernels/ref/iq_search.h) with vectors of eight, one lane a value or
 * one a point of a list. All levels with AVX2 use this. Other CPUs use the reference's encoders. */
#include "kernels/host/codecs/simd.h"
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_book.h"

#ifdef __AVX2__

#define IQ_INLINE     WIDE_INLINE
#define IQ_SCOPE      static
#define IQ_NAME(name) WIDE_JOIN(encode_##name, APR_LEVEL)

/* The powers of three that the bits of a byte stand for, summed. */
#define THREES(m)                                                                                                          \
    ((m)&1) + 3 * ((m) >> 1 & 1) + 9 * ((m) >> 2 & 1) + 27 * ((m) >> 3 & 1) + 81 * ((m) >> 4 & 1) + 243 * ((m) >> 5 & 1) + \
        729 * ((m) >> 6 & 1) + 2187 * ((m) >> 7 & 1)
#define FOUR(m)    THREES(m), THREES((m) + 1), THREES((m) + 2), THREES((m) + 3)
#define SIXTEEN(m) FOUR(m), FOUR((m) + 4), FOUR((m) + 8), FOUR((m) + 12)
#define SIXTY_4(m) SIXTEEN(m), SIXTEEN((m) + 16), SIXTEEN((m) + 32), SIXTEEN((m) + 48)
static const uint16_t threes[256] = {SIXTY_4(0), SIXTY_4(64), SIXTY_4(128), SIXTY_4(192)};

/* The digits of the cells: how many boundaries are below a value. */
WIDE_INLINE void iq_cell(const float *x, float s, const float *boundary, int n_levels, int *cell)
{
    const __m256 value = _mm256_loadu_ps(x);
    if (n_levels == 3) {
        const int above_0 = _mm256_movemask_ps(_mm256_cmp_ps(value, _mm256_set1_ps(s * boundary[0]), _CMP_GT_OQ));
        const int above_1 = _mm256_movemask_ps(_mm256_cmp_ps(value, _mm256_set1_ps(s * boundary[1]), _CMP_GT_OQ));
        cell[0] = threes[above_0] + threes[above_1];
        return;
    }
    __m256i digit = _mm256_setzero_si256();
    for (int l = 0; l < 7; l++)
        digit = _mm256_sub_epi32(digit, _mm256_castps_si256(_mm256_cmp_ps(value, _mm256_set1_ps(s * boundary[l]), _CMP_GT_OQ)));
    digit = _mm256_sllv_epi32(digit, _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9));
    digit = _mm256_or_si256(digit, _mm256_shuffle_epi32(digit, 0x4e));
    digit = _mm256_or_si256(digit, _mm256_shuffle_epi32(digit, 0xb1));
    cell[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(digit));
    cell[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(digit, 1));
}

WIDE_INLINE void iq_errors(const float *x, const float *w, float s, const float *level, float (*error)[8])
{
    const __m256 values = _mm256_mul_ps(_mm256_set1_ps(s), _mm256_loadu_ps(level));
    for (int i = 0; i < 8; i++) {
        const __m256 e = _mm256_sub_ps(_mm256_set1_ps(x[i]), values);
        _mm256_storeu_ps(error[i], _mm256_mul_ps(_mm256_set1_ps(w[i]), _mm256_mul_ps(e, e)));
    }
}

/* The errors of value i in eight points. The permutation reads three bits of a lane: of two-bit levels, one bit too many, so that the
 * errors are stored twice. */
WIDE_INLINE __m256 errors_of_value(float (*error)[8], int i, __m256i words, int bits)
{
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(error[i]), _mm256_srli_epi32(words, bits * i));
}

WIDE_INLINE __m256 errors_of_points(float (*error)[8], __m256i words, int n_values)
{
    __m256 pair[4];
    for (int k = 0; k < n_values / 2; k++)
        pair[k] =
            _mm256_add_ps(errors_of_value(error, 2 * k, words, 16 / n_values), errors_of_value(error, 2 * k + 1, words, 16 / n_values));
    const __m256 low = _mm256_add_ps(pair[0], pair[1]);
    return n_values == 4 ? low : _mm256_add_ps(low, _mm256_add_ps(pair[2], pair[3]));
}

WIDE_INLINE float least_lane(__m256 a)
{
    __m128 b = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_min_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_min_ss(b, _mm_movehdup_ps(b)));
}

/* Each lane keeps the first of its least errors; of the lanes with the least one, the one that is first in the list. */
WIDE_INLINE unsigned iq_best_of_list(const uint16_t *list, int n, float (*error)[8], int n_values, float *least)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 best = _mm256_set1_ps(FLT_MAX);
    __m256i at = lanes;
    for (int k = 0; k < n; k += 8) {
        const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(list + k)));
        const __m256i index = _mm256_add_epi32(lanes, _mm256_set1_epi32(k));
        const __m256 is_in = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), index));
        const __m256 sum = errors_of_points(error, words, n_values);
        const __m256 is_less = _mm256_and_ps(_mm256_cmp_ps(sum, best, _CMP_LT_OQ), is_in);
        best = _mm256_blendv_ps(best, sum, is_less);
        at = _mm256_blendv_epi8(at, index, _mm256_castps_si256(is_less));
    }
    *least = least_lane(best);
    if (n <= 8) return list[__builtin_ctz((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(best, _mm256_set1_ps(*least), _CMP_EQ_OQ)))];
    const __m256i not_least = _mm256_castps_si256(_mm256_cmp_ps(best, _mm256_set1_ps(*least), _CMP_NEQ_UQ));
    __m256i first = _mm256_or_si256(at, _mm256_srli_epi32(not_least, 1)); /* not the least: the largest index */
    __m128i low = _mm_min_epi32(_mm256_castsi256_si128(first), _mm256_extracti128_si256(first, 1));
    low = _mm_min_epi32(low, _mm_shuffle_epi32(low, 0x4e));
    low = _mm_min_epi32(low, _mm_shuffle_epi32(low, 0xb1));
    return list[_mm_cvtsi128_si32(low)];
}

WIDE_INLINE void iq_values(const uint16_t *word, const float *level, int n_values, float *v)
{
    const __m256i shifts = n_values == 8 ? _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14) : _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const uint32_t words = n_values == 8 ? word[0] : word[0] | (uint32_t)word[1] << 16;
    _mm256_storeu_ps(v, _mm256_permutevar8x32_ps(_mm256_loadu_ps(level), _mm256_srlv_epi32(_mm256_set1_epi32((int)words), shifts)));
}

#include "kernels/ref/iq_encode.h"

IQ_ENCODERS

#define ENCODERS(type)                                           \
    {                                                            \
        .encode = IQ_NAME(type), .encode_by = IQ_NAME(type##_by) \
    }
const apr_host_codecs_table WIDE_NAME(apr_simd_iq) = {
    .codecs =
        {
            [APR_IQ2_XXS] = ENCODERS(iq2_xxs),
            [APR_IQ2_XS] = ENCODERS(iq2_xs),
            [APR_IQ2_S] = ENCODERS(iq2_s),
            [APR_IQ3_XXS] = ENCODERS(iq3_xxs),
            [APR_IQ3_S] = ENCODERS(iq3_s),
            [APR_IQ1_S] = ENCODERS(iq1_s),
            [APR_IQ1_M] = ENCODERS(iq1_m),
        },
};

#else

const apr_host_codecs_table WIDE_NAME(apr_simd_iq) = {0};

#endif
