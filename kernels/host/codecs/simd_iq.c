/* simd_iq.c - encoders of IQ1, IQ2 and IQ3: the reference's search (kernels/ref/iq_search.h) with vectors of eight, one lane a value, or
 * one a point of a list, for which AVX-512 has vectors of 16. All levels with AVX2 use this. Other CPUs use the reference's encoders. */
#include "kernels/host/codecs/simd.h"
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/ref/codecs.h"
#include "kernels/ref/iq_book.h"
#include "kernels/ref/iq_types.h"

#ifdef __AVX2__

#define IQ_INLINE     WIDE_INLINE
#define IQ_SCOPE      static
#define IQ_NAME(name) WIDE_JOIN(encode_##name, APR_LEVEL)

/* See the reference. */
WIDE_INLINE unsigned iq_load_group(const float *src, const float *w, float limit, bool has_signs, float *x, float *wx)
{
    const __m256 any = _mm256_loadu_ps(src), number = _mm256_and_ps(any, _mm256_cmp_ps(any, any, _CMP_ORD_Q));
    const __m256 value = _mm256_max_ps(_mm256_min_ps(number, _mm256_set1_ps(limit)), _mm256_set1_ps(-limit));
    const __m256 minus = _mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_LT_OQ);
    const __m256 stored = has_signs ? _mm256_xor_ps(value, _mm256_and_ps(minus, _mm256_set1_ps(-0.0f))) : value;
    _mm256_storeu_ps(x, stored);
    _mm256_storeu_ps(wx, _mm256_mul_ps(_mm256_loadu_ps(w), stored));
    return (unsigned)_mm256_movemask_ps(minus);
}

/* The powers of three that the bits of a byte stand for, summed. */
#define THREES(m)                                                                                                          \
    ((m)&1) + 3 * ((m) >> 1 & 1) + 9 * ((m) >> 2 & 1) + 27 * ((m) >> 3 & 1) + 81 * ((m) >> 4 & 1) + 243 * ((m) >> 5 & 1) + \
        729 * ((m) >> 6 & 1) + 2187 * ((m) >> 7 & 1)
#define FOUR(m)    THREES(m), THREES((m) + 1), THREES((m) + 2), THREES((m) + 3)
#define SIXTEEN(m) FOUR(m), FOUR((m) + 4), FOUR((m) + 8), FOUR((m) + 12)
#define SIXTY_4(m) SIXTEEN(m), SIXTEEN((m) + 16), SIXTEEN((m) + 32), SIXTEEN((m) + 48)
static const uint16_t threes[256] = {SIXTY_4(0), SIXTY_4(64), SIXTY_4(128), SIXTY_4(192)};

/* `bit` in the lanes whose value is above bound `at`. */
WIDE_INLINE __m256i above(__m256 value, __m256 bounds, __m256i at, int bit)
{
    const __m256 is_above = _mm256_cmp_ps(value, _mm256_permutevar8x32_ps(bounds, at), _CMP_GT_OQ);
    return _mm256_and_si256(_mm256_castps_si256(is_above), _mm256_set1_epi32(bit));
}

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
    /* A binary search in boundaries that do not fall. */
    const __m256 bounds = _mm256_mul_ps(_mm256_set1_ps(s), _mm256_loadu_ps(boundary));
    __m256i digit = above(value, bounds, _mm256_set1_epi32(3), 4);
    digit = _mm256_or_si256(digit, above(value, bounds, _mm256_or_si256(digit, _mm256_set1_epi32(1)), 2));
    digit = _mm256_or_si256(digit, above(value, bounds, digit, 1));
    digit = _mm256_sllv_epi32(digit, _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9));
    digit = _mm256_or_si256(digit, _mm256_shuffle_epi32(digit, 0x4e));
    digit = _mm256_or_si256(digit, _mm256_shuffle_epi32(digit, 0xb1));
    cell[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(digit));
    cell[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(digit, 1));
}

WIDE_INLINE float least_lane(__m256 a)
{
    __m128 b = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_min_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_min_ss(b, _mm_movehdup_ps(b)));
}

#ifndef __AVX512F__

typedef struct iq_error_table {
    __m256 of[8]; /* of a value: lane l has the error at level l, or at level l % 4 of three levels */
} iq_error_table;

/* Of value x; s: minus the scale to turn its sign. */
WIDE_INLINE __m256 errors_at(float x, float w, float s, const float *level)
{
    const __m256 e = _mm256_sub_ps(_mm256_set1_ps(x), _mm256_mul_ps(_mm256_set1_ps(s), _mm256_loadu_ps(level)));
    return _mm256_mul_ps(_mm256_set1_ps(w), _mm256_mul_ps(e, e));
}

WIDE_INLINE void iq_errors(const iq_type *t, const float *x, const float *w, float s, const float *level, iq_error_table *errors)
{
    (void)t;
    for (int i = 0; i < 8; i++) errors->of[i] = errors_at(x[i], w[i], s, level);
}

WIDE_INLINE void iq_turn_errors(const iq_type *t, const float *x, const float *w, float s, int i, iq_error_table *errors)
{
    errors->of[i] = errors_at(x[i], w[i], -s, t->level[0]);
}

/* The errors of value i in eight points. The permutation reads three bits of a lane: of two-bit levels, one bit too many, so that the
 * errors are stored twice. */
WIDE_INLINE __m256 errors_of_value(const __m256 *error, int i, __m256i words, int bits)
{
    return _mm256_permutevar8x32_ps(error[i], _mm256_srli_epi32(words, bits * i));
}

WIDE_INLINE __m256 errors_of_points(const __m256 *error, __m256i words, int n_values)
{
    __m256 pair[4];
    for (int k = 0; k < n_values / 2; k++)
        pair[k] =
            _mm256_add_ps(errors_of_value(error, 2 * k, words, 16 / n_values), errors_of_value(error, 2 * k + 1, words, 16 / n_values));
    const __m256 low = _mm256_add_ps(pair[0], pair[1]);
    return n_values == 4 ? low : _mm256_add_ps(low, _mm256_add_ps(pair[2], pair[3]));
}

/* Each lane keeps the first of its least errors; of the lanes with the least one, the one that is first in the list. */
WIDE_INLINE unsigned iq_best_of_list(const uint16_t *list, int n, const iq_error_table *errors, int n_values, int h, float *least)
{
    const __m256 *const error = errors->of + n_values * h;
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

/* The best point of the list of cell[h]. */
WIDE_INLINE uint16_t find_point(const apr_iq_book *book, const int *cell, const iq_error_table *errors, int n_values, int h, float *least)
{
    const uint32_t first = book->first[cell[h]];
    return (uint16_t)iq_best_of_list(book->list + first, (int)(book->first[cell[h] + 1] - first), errors, n_values, h, &least[h]);
}

WIDE_INLINE void iq_find_points(const iq_type *t, const apr_iq_book *book, const int *cell, const iq_error_table *errors, uint16_t *word,
                                float *least)
{
    word[0] = find_point(book, cell, errors, t->n_values, 0, least);
    if (t->n_values == 4) word[1] = find_point(book, cell, errors, 4, 1, least);
}

#else

/* 16 lanes. With three levels a pair of values has nine errors, those of one plus those of the other: lane a + 4 * b of of[k] is that of
 * values 2 * k and 2 * k + 1 at levels a and b. With eight levels of[k] has value k in the lower lanes and value k + 4 in the upper. */
typedef struct iq_error_table {
    __m512 of[4];
} iq_error_table;

WIDE_INLINE __m512 errors_at(__m512 x, __m512 w, __m512 values)
{
    const __m512 e = _mm512_sub_ps(x, values);
    return _mm512_mul_ps(w, _mm512_mul_ps(e, e));
}

/* of[k]. The values that it is of have scales of their own: minus the scale to turn a sign. */
WIDE_INLINE __m512 errors_of_two(const iq_type *t, const float *x, const float *w, int k, float s_0, float s_1, const float *level)
{
    const __m512 levels = _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_loadu_ps(level))));
    if (t->n_levels == 3) {
        const __m512i second = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        const __m512 at_0 = _mm512_mul_ps(_mm512_set1_ps(s_0), levels);
        const __m512 at_1 = _mm512_mul_ps(_mm512_set1_ps(s_1), _mm512_permutexvar_ps(second, levels));
        return _mm512_add_ps(errors_at(_mm512_set1_ps(x[2 * k]), _mm512_set1_ps(w[2 * k]), at_0),
                             errors_at(_mm512_set1_ps(x[2 * k + 1]), _mm512_set1_ps(w[2 * k + 1]), at_1));
    }
    const __mmask16 upper = 0xff00;
    const __m512 s = _mm512_mask_mov_ps(_mm512_set1_ps(s_0), upper, _mm512_set1_ps(s_1));
    return errors_at(_mm512_mask_mov_ps(_mm512_set1_ps(x[k]), upper, _mm512_set1_ps(x[k + 4])),
                     _mm512_mask_mov_ps(_mm512_set1_ps(w[k]), upper, _mm512_set1_ps(w[k + 4])), _mm512_mul_ps(s, levels));
}

WIDE_INLINE void iq_errors(const iq_type *t, const float *x, const float *w, float s, const float *level, iq_error_table *errors)
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) errors->of[k] = errors_of_two(t, x, w, k, s, s, level);
}

WIDE_INLINE void iq_turn_errors(const iq_type *t, const float *x, const float *w, float s, int i, iq_error_table *errors)
{
    const int k = t->n_levels == 3 ? i / 2 : i % 4;
    const bool is_second = t->n_levels == 3 ? i % 2 == 1 : i >= 4;
    errors->of[k] = errors_of_two(t, x, w, k, is_second ? s : -s, is_second ? -s : s, t->level[0]);
}

/* The errors of 16 points. upper: bits 3, 7, 11 and 15 where a lane's point is the second one of the group. */
WIDE_INLINE __m512 errors_of_points(const iq_error_table *errors, __m512i words, __m512i upper)
{
    const __m512i digits = _mm512_or_si512(words, upper);
    const __m512 a = _mm512_permutexvar_ps(digits, errors->of[0]);
    const __m512 b = _mm512_permutexvar_ps(_mm512_srli_epi32(digits, 4), errors->of[1]);
    const __m512 c = _mm512_permutexvar_ps(_mm512_srli_epi32(digits, 8), errors->of[2]);
    const __m512 d = _mm512_permutexvar_ps(_mm512_srli_epi32(digits, 12), errors->of[3]);
    return _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
}

/* Each lane keeps the first of its least errors, and with the point's word its place in the list, in the upper 16 bits. */
typedef struct best_points {
    __m512 least;
    __m512i place;
} best_points;

WIDE_INLINE void keep_better(best_points *best, __mmask16 is_in, __m512 error, __m512i words, __m512i place)
{
    const __mmask16 is_less = _mm512_mask_cmp_ps_mask(is_in, error, best->least, _CMP_LT_OQ);
    best->least = _mm512_mask_mov_ps(best->least, is_less, error);
    best->place = _mm512_mask_or_epi32(best->place, is_less, words, place);
}

WIDE_INLINE unsigned iq_best_of_list(const uint16_t *list, int n, const iq_error_table *errors, int n_values, int h, float *least)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i upper = _mm512_set1_epi32(n_values == 4 ? h * 0x8888 : 0);
    best_points best = {_mm512_set1_ps(FLT_MAX), _mm512_set1_epi32(list[0])};
    for (int k = 0; k < n; k += 16) {
        const __mmask16 is_in = (__mmask16)(n - k >= 16 ? 0xffff : (1u << (n - k)) - 1);
        const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(is_in, list + k));
        const __m512i place = _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(k)), 16);
        keep_better(&best, is_in, errors_of_points(errors, words, upper), words, place);
    }
    *least = _mm512_reduce_min_ps(best.least);
    const __mmask16 is_least = _mm512_cmp_ps_mask(best.least, _mm512_set1_ps(*least), _CMP_EQ_OQ);
    return _mm512_mask_reduce_min_epu32(is_least, best.place) & 0xffff;
}

/* Both lists of a group of two points at once: that of the first point has the lower eight lanes. */
WIDE_INLINE void find_two_points(const apr_iq_book *book, const int *cell, const iq_error_table *errors, uint16_t *word, float *least)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i upper = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0x8888, 0x8888, 0x8888, 0x8888, 0x8888, 0x8888, 0x8888, 0x8888);
    const uint16_t *const list[2] = {book->list + book->first[cell[0]], book->list + book->first[cell[1]]};
    const int n[2] = {(int)(book->first[cell[0] + 1] - book->first[cell[0]]), (int)(book->first[cell[1] + 1] - book->first[cell[1]])};
    const int most = n[0] > n[1] ? n[0] : n[1];
    const __m512i ends = _mm512_mask_mov_epi32(_mm512_set1_epi32(n[0]), 0xff00, _mm512_set1_epi32(n[1]));
    best_points best = {_mm512_set1_ps(FLT_MAX), _mm512_setzero_si512()};
    for (int k = 0; k < most; k += 8) {
        const __m128i first = _mm_loadu_si128((const __m128i *)(list[0] + (k < n[0] ? k : 0))); /* a list has words after it */
        const __m128i second = _mm_loadu_si128((const __m128i *)(list[1] + (k < n[1] ? k : 0)));
        const __m512i words = _mm512_cvtepu16_epi32(_mm256_set_m128i(second, first));
        const __m512i index = _mm512_add_epi32(lanes, _mm512_set1_epi32(k));
        keep_better(&best, _mm512_cmpgt_epi32_mask(ends, index), errors_of_points(errors, words, upper), words,
                    _mm512_slli_epi32(index, 16));
    }
    __m512 low =
        _mm512_min_ps(best.least, _mm512_shuffle_f32x4(best.least, best.least, 0xb1)); /* the least of each half in all its lanes */
    low = _mm512_min_ps(low, _mm512_permute_ps(low, 0x4e));
    low = _mm512_min_ps(low, _mm512_permute_ps(low, 0xb1));
    const __mmask16 is_least = _mm512_cmp_ps_mask(best.least, low, _CMP_EQ_OQ);
    __m512i place = _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), is_least, best.place);
    place = _mm512_min_epu32(place, _mm512_shuffle_i32x4(place, place, 0xb1));
    place = _mm512_min_epu32(place, _mm512_shuffle_epi32(place, 0x4e));
    place = _mm512_min_epu32(place, _mm512_shuffle_epi32(place, 0xb1));
    word[0] = (uint16_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(place));
    word[1] = (uint16_t)_mm_cvtsi128_si32(_mm512_extracti32x4_epi32(place, 2));
    least[0] = _mm512_cvtss_f32(low);
    least[1] = _mm_cvtss_f32(_mm512_extractf32x4_ps(low, 2));
}

WIDE_INLINE void iq_find_points(const iq_type *t, const apr_iq_book *book, const int *cell, const iq_error_table *errors, uint16_t *word,
                                float *least)
{
    if (t->n_values == 4) {
        find_two_points(book, cell, errors, word, least);
        return;
    }
    const uint32_t first = book->first[cell[0]];
    word[0] = (uint16_t)iq_best_of_list(book->list + first, (int)(book->first[cell[0] + 1] - first), errors, 8, 0, least);
}

#endif

WIDE_INLINE int first_least(__m256 v)
{
    return __builtin_ctz((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(least_lane(v)), _CMP_EQ_OQ)));
}

WIDE_INLINE int iq_first_least(const float *v) { return first_least(_mm256_loadu_ps(v)); }

WIDE_INLINE unsigned iq_below(const float *v, float limit)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(v), _mm256_set1_ps(limit), _CMP_LT_OQ));
}

/* The error of each value at its nearest level, and how much more it is with the sign turned: see the reference. */
WIDE_INLINE void iq_price_signs(const iq_type *t, const float *x, const float *w, float s, float *nearest, float *price)
{
    const __m256 values = _mm256_loadu_ps(x), weights = _mm256_loadu_ps(w);
    __m256 least = _mm256_set1_ps(FLT_MAX);
    for (int l = 0; l < t->n_levels; l++) {
        const __m256 e = _mm256_sub_ps(values, _mm256_set1_ps(s * t->level[0][l]));
        least = _mm256_min_ps(_mm256_mul_ps(weights, _mm256_mul_ps(e, e)), least);
    }
    const __m256 e = _mm256_add_ps(values, _mm256_set1_ps(s * t->level[0][0]));
    _mm256_storeu_ps(nearest, least);
    _mm256_storeu_ps(price, _mm256_sub_ps(_mm256_mul_ps(weights, _mm256_mul_ps(e, e)), least));
}

WIDE_INLINE void iq_raise(float *v, float first, float second)
{
    _mm256_storeu_ps(v, _mm256_add_ps(_mm256_loadu_ps(v), _mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first))));
}

typedef __m256 iq_eight;

WIDE_INLINE void iq_values(const uint16_t *word, const float *level, int n_values, iq_eight *v)
{
    const __m256i shifts = n_values == 8 ? _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14) : _mm256_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12);
    const __m256i words = n_values == 8 ? _mm256_set1_epi32(word[0]) : _mm256_set_m128i(_mm_set1_epi32(word[1]), _mm_set1_epi32(word[0]));
    *v = _mm256_permutevar8x32_ps(_mm256_loadu_ps(level), _mm256_srlv_epi32(words, shifts));
}

WIDE_INLINE int iq_least_product(const float *x, const float *w, const iq_eight *v)
{
    return first_least(_mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(w), _mm256_loadu_ps(x)), *v));
}

WIDE_INLINE void iq_turn_value(iq_eight *v, int i, bool is_turned)
{
    const __m256i is_it = _mm256_cmpeq_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(i));
    const __m256i sign = _mm256_set1_epi32((int)((unsigned)is_turned << 31));
    *v = _mm256_xor_ps(*v, _mm256_castsi256_ps(_mm256_and_si256(is_it, sign)));
}

WIDE_INLINE void iq_add_products(const float *wx, const float *w, const iq_eight *v, iq_eight *a, iq_eight *b)
{
    *a = _mm256_add_ps(*a, _mm256_mul_ps(_mm256_loadu_ps(wx), *v));
    *b = _mm256_add_ps(*b, _mm256_mul_ps(_mm256_loadu_ps(w), _mm256_mul_ps(*v, *v)));
}

WIDE_INLINE float iq_sum(const iq_eight *a)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(*a), _mm256_extractf128_ps(*a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
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
