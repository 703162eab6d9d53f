/* simd_iq4_levels.h - the levels of IQ4_NL and IQ4_XS that are nearest to vectors of values.
 *
 * The level of v is -127, and goes up at each middle (between two neighbours) that is below v. AVX-512 and AVX2 divide the values into
 * intervals that have at most one middle each. What an interval has is looked up, and one comparison decides. */
#ifndef APR_KERNELS_HOST_SIMD_IQ4_LEVELS_H
#define APR_KERNELS_HOST_SIMD_IQ4_LEVELS_H

#include "kernels/host/codecs/simd.h"

enum { IQ4_AT_ONCE = 8 }; /* vectors */

/* The middle between a level and the next, and how much higher the next is; i: passed on. */
#define IQ4_STEPS(X, i)  \
    X(-115.5f, 23.0f, i) \
    X(-93.5f, 21.0f, i)  \
    X(-74.0f, 18.0f, i)  \
    X(-57.0f, 16.0f, i)  \
    X(-42.0f, 14.0f, i)  \
    X(-28.5f, 13.0f, i)  \
    X(-16.0f, 12.0f, i)  \
    X(-4.5f, 11.0f, i)   \
    X(7.0f, 12.0f, i)    \
    X(19.0f, 12.0f, i)   \
    X(31.5f, 13.0f, i)   \
    X(45.5f, 15.0f, i)   \
    X(61.0f, 16.0f, i)   \
    X(79.0f, 20.0f, i)   \
    X(101.0f, 24.0f, i)

/* Tables with an entry for each of 32 intervals. */
#define IQ4_FOUR(entry, i)           entry(i), entry((i) + 1), entry((i) + 2), entry((i) + 3)
#define IQ4_SIXTEEN(entry, i)        IQ4_FOUR(entry, i), IQ4_FOUR(entry, (i) + 4), IQ4_FOUR(entry, (i) + 8), IQ4_FOUR(entry, (i) + 12)
#define IQ4_TABLE(type, name, entry) static const type name[32] = {IQ4_SIXTEEN(entry, 0), IQ4_SIXTEEN(entry, 16)};

#if defined(__AVX512F__)

/* Interval k is 10.25 wide, around 10.25 * k. No middle is nearer than 0.6 to an end, so that a value near an end may be counted to
 * either side, and a fused operation may find k. Its entry is k modulo 32. */
#define IQ4_START(i)             (((i) < 16 ? (float)(i) : (float)(i)-32.0f) * 10.25f - 5.125f)
#define IQ4_ENDS_AFTER(m, i)     ((m) < IQ4_START(i) + 10.25f)
#define IQ4_ADD_BELOW(m, up, i)  +((m) < IQ4_START(i) ? (up) : 0.0f)
#define IQ4_ADD_ABOVE(m, up, i)  +(IQ4_ENDS_AFTER(m, i) ? (up) : 0.0f)
#define IQ4_ADD_INSIDE(m, up, i) +(IQ4_ENDS_AFTER(m, i) && !((m) < IQ4_START(i)) ? (m) : 0.0f)
#define IQ4_BELOW(i)             (-127.0f IQ4_STEPS(IQ4_ADD_BELOW, i)) /* the level below the middle */
#define IQ4_ABOVE(i)             (-127.0f IQ4_STEPS(IQ4_ADD_ABOVE, i)) /* the level above it, or the same if there is none */
#define IQ4_MIDDLE(i)            (0.0f IQ4_STEPS(IQ4_ADD_INSIDE, i))
IQ4_TABLE(float, iq4_below, IQ4_BELOW)
IQ4_TABLE(float, iq4_above, IQ4_ABOVE)
IQ4_TABLE(float, iq4_middle, IQ4_MIDDLE)

WIDE_INLINE wide iq4_lookup(const float *table, __m512i k) { return _mm512_permutex2var_ps(wide_load(table), k, wide_load(table + 16)); }

/* NaN becomes -120, whose level is -127 as well. */
WIDE_INLINE void iq4_levels(const wide v[IQ4_AT_ONCE], wide level[IQ4_AT_ONCE])
{
#pragma GCC unroll 8
    for (int i = 0; i < IQ4_AT_ONCE; i++) {
        const wide value = wide_min(wide_max(v[i], wide_set(-120.0f)), wide_set(105.0f));
        const __m512i k = wide_bits_of(_mm512_fmadd_ps(value, wide_set(1.0f / 10.25f), wide_set(12582912.0f))); /* as wide_round does */
        level[i] = wide_choose(wide_less(iq4_lookup(iq4_middle, k), value), iq4_lookup(iq4_above, k), iq4_lookup(iq4_below, k));
    }
}

#elif defined(__AVX2__)

/* Middles are multiples of a half, so a middle is below v if twice the middle is below 2 * v rounded up. With 240 added, these are
 * numbers below 448: the interval in the upper five bits, the place in it in the lower four. */
#define IQ4_OF(m)               ((int)(2.0f * (m)) + 240)
#define IQ4_ADD_COUNT(m, up, i) +(IQ4_OF(m) >> 4 < (i))
#define IQ4_ADD_PLACE(m, up, i) +(IQ4_OF(m) >> 4 == (i) ? (IQ4_OF(m) & 15) - 15 : 0)
#define IQ4_COUNT(i)            (0 IQ4_STEPS(IQ4_ADD_COUNT, i))  /* how many middles are below the interval */
#define IQ4_PLACE(i)            (15 IQ4_STEPS(IQ4_ADD_PLACE, i)) /* the place of the middle in it; 15, where no value is above, if none */
IQ4_TABLE(int8_t, iq4_count, IQ4_COUNT)
IQ4_TABLE(int8_t, iq4_place, IQ4_PLACE)

WIDE_INLINE __m256i iq4_twice(const void *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(p)); }

/* The entries of 32 intervals. A shuffle gives 0 where bit 7 of its index is set. */
WIDE_INLINE __m256i iq4_lookup(const int8_t *table, __m256i interval)
{
    const __m256i low = _mm256_shuffle_epi8(iq4_twice(table), _mm256_add_epi8(interval, _mm256_set1_epi8(0x70)));
    return _mm256_or_si256(low, _mm256_shuffle_epi8(iq4_twice(table + 16), _mm256_sub_epi8(interval, _mm256_set1_epi8(16))));
}

/* 2 * v rounded up, limited, and 240 added. Values that are far too low, and NaN, become the lowest. */
WIDE_INLINE __m256i iq4_numbers(wide a, wide b)
{
    const wide most = wide_set(110.0f), low = _mm256_min_ps(most, a), high = _mm256_min_ps(most, b); /* NaN stays NaN */
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_ceil_ps(wide_add(low, low))),
                                             _mm256_cvtps_epi32(_mm256_ceil_ps(wide_add(high, high))));
    return _mm256_max_epi16(_mm256_adds_epi16(words, _mm256_set1_epi16(240)), _mm256_setzero_si256());
}

/* Vector k of four has bytes 4 * k to 4 * k + 3 of each half. */
WIDE_INLINE void iq4_levels_of_four(const wide v[4], wide level[4])
{
    static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const __m256i a = iq4_numbers(v[0], v[1]), b = iq4_numbers(v[2], v[3]), low = _mm256_set1_epi16(15);
    const __m256i interval = _mm256_packus_epi16(_mm256_srli_epi16(a, 4), _mm256_srli_epi16(b, 4));
    const __m256i place = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    const __m256i is_above = _mm256_cmpgt_epi8(place, iq4_lookup(iq4_place, interval));
    const __m256i bytes = _mm256_shuffle_epi8(iq4_twice(levels), _mm256_sub_epi8(iq4_lookup(iq4_count, interval), is_above));
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        const int no = 0x00808080; /* the byte of a lane becomes its highest one */
        const __m256i of_k = _mm256_setr_epi32(no | 4 * k << 24, no | (4 * k + 1) << 24, no | (4 * k + 2) << 24, no | (4 * k + 3) << 24,
                                               no | 4 * k << 24, no | (4 * k + 1) << 24, no | (4 * k + 2) << 24, no | (4 * k + 3) << 24);
        level[k] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_shuffle_epi8(bytes, of_k), 24));
    }
}

WIDE_INLINE void iq4_levels(const wide v[IQ4_AT_ONCE], wide level[IQ4_AT_ONCE])
{
    iq4_levels_of_four(v, level);
    iq4_levels_of_four(v + 4, level + 4);
}

#else

WIDE_INLINE void iq4_levels(const wide v[IQ4_AT_ONCE], wide level[IQ4_AT_ONCE])
{
    for (int i = 0; i < IQ4_AT_ONCE; i++) {
        level[i] = wide_set(-127.0f);
#define ADD(m, up, of) level[of] = wide_add(level[of], wide_where(wide_less(wide_set(m), v[of]), wide_set(up)));
        IQ4_STEPS(ADD, i)
#undef ADD
    }
}

#endif

#endif
