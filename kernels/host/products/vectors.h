/* vectors.h - vectors as wide as the CPU level that a file is compiled for: 64, 32 or 16 bytes.
 *
 * Code is written for 64 bytes, which are VEC_PARTS vectors: one, two or four. The compiler has the basic vector operations; the others
 * are here. Operations never cross 16 bytes, so all levels compute the same. Only files compiled once for each level may include this
 * (APR_LEVEL names it, the Makefile sets the instructions). */
#ifndef APR_KERNELS_HOST_VECTORS_H
#define APR_KERNELS_HOST_VECTORS_H

#include "formats/base/bytes.h"
#include "formats/number/half.h"

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LEVEL_JOIN_(a, b) a##_##b
#define LEVEL_JOIN(a, b)  LEVEL_JOIN_(a, b)
#define LEVEL_NAME(name)  LEVEL_JOIN(name, APR_LEVEL) /* the name in this level: apr_products_avx2 */
#define LEVEL_TEXT_(name) #name
#define LEVEL_TEXT_OF(x)  LEVEL_TEXT_(x)
#define LEVEL_TEXT        LEVEL_TEXT_OF(APR_LEVEL)
#define VEC_INLINE        static inline __attribute__((always_inline))

#if defined(__AVX512BW__)
enum { VEC_BYTES = 64 };
#elif defined(__AVX2__)
enum { VEC_BYTES = 32 };
#else
enum { VEC_BYTES = 16 };
#endif
enum { VEC_PARTS = 64 / VEC_BYTES, VEC_LANES = VEC_BYTES / 4 };

/* Is there an instruction for lookups in a table of 16 bytes? Baseline x86-64 has none; table values are computed there. */
#if defined(__AVX2__) || defined(__aarch64__)
#define VEC_LOOKS_UP 1
#else
#define VEC_LOOKS_UP 0
#endif

typedef uint8_t vec_bytes __attribute__((vector_size(VEC_BYTES)));
typedef int8_t vec_signed __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t vec_words __attribute__((vector_size(VEC_BYTES)));
typedef int32_t vec_ints __attribute__((vector_size(VEC_BYTES)));
typedef float vec_floats __attribute__((vector_size(VEC_BYTES)));
typedef float eight_floats __attribute__((vector_size(32)));

VEC_INLINE vec_words vec_load(const void *p)
{
    vec_words v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_INLINE vec_floats vec_load_floats(const void *p)
{
    vec_floats v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_INLINE vec_ints vec_load_ints(const void *p)
{
    vec_ints v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Rows of a matrix are stored one after another, so the bytes this far ahead are prefetched; prefetching past the end does not fault.
 * Measured on one busy core with AVX-512, a page ahead: Q4_K from 5.5 to 7.6 GB/s, Q8_0 from 7.4 to 8.9, Q6_K from 6.7 to 9. With AVX2
 * (Zen 3) that is too far for FP16, which is read fastest: 11 GB/s, and 14 at a quarter of a page. */
#if defined(__AVX512BW__)
enum { VEC_AHEAD = 4096, VEC_AHEAD_F16 = 4096 };
#else
enum { VEC_AHEAD = 2048, VEC_AHEAD_F16 = 1024 };
#endif
VEC_INLINE void vec_prefetch(const uint8_t *p, const int n_bytes, const int ahead)
{
    enum { LINE = 64 };
    for (int at = 0; at < n_bytes; at += LINE) __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)(ahead + at)));
}

/* Stops the compiler from delaying additions to v: otherwise it makes all products first, and runs out of registers. */
#if defined(__AVX512F__)
#define VEC_KEEP(v) __asm__("" : "+v"(v))
#elif defined(__x86_64__)
#define VEC_KEEP(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define VEC_KEEP(v) __asm__("" : "+w"(v))
#else
#define VEC_KEEP(v) ((void)0)
#endif

VEC_INLINE vec_floats vec_to_floats(vec_ints v) { return __builtin_convertvector(v, vec_floats); }

#if defined(__AVX512BW__)

/* a[2 l] * b[2 l] + a[2 l + 1] * b[2 l + 1], signed 16-bit numbers. */
VEC_INLINE vec_ints vec_pairs(vec_words a, vec_words b) { return (vec_ints)_mm512_madd_epi16((__m512i)a, (__m512i)b); }

VEC_INLINE vec_ints vec_add_pairs(vec_ints sum, vec_words a, vec_words b)
{
#ifdef __AVX512VNNI__
    return (vec_ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
    return sum + vec_pairs(a, b);
#endif
}

/* Transposes 4 x 4 lanes in each 16 bytes: v[0] gets the first lanes of the four vectors, v[1] the second ones, ... */
VEC_INLINE void vec_transpose_4(vec_ints v[4])
{
    const __m512i a = _mm512_unpacklo_epi32((__m512i)v[0], (__m512i)v[1]), b = _mm512_unpackhi_epi32((__m512i)v[0], (__m512i)v[1]);
    const __m512i c = _mm512_unpacklo_epi32((__m512i)v[2], (__m512i)v[3]), d = _mm512_unpackhi_epi32((__m512i)v[2], (__m512i)v[3]);
    v[0] = (vec_ints)_mm512_unpacklo_epi64(a, c);
    v[1] = (vec_ints)_mm512_unpackhi_epi64(a, c);
    v[2] = (vec_ints)_mm512_unpacklo_epi64(b, d);
    v[3] = (vec_ints)_mm512_unpackhi_epi64(b, d);
}

/* Stores each 16 bytes separately, `stride` bytes apart. */
VEC_INLINE void vec_store_16s(uint8_t *p, int64_t stride, vec_ints v)
{
    _mm_storeu_si128((void *)p, _mm512_castsi512_si128((__m512i)v));
    _mm_storeu_si128((void *)(p + stride), _mm512_extracti32x4_epi32((__m512i)v, 1));
    _mm_storeu_si128((void *)(p + 2 * stride), _mm512_extracti32x4_epi32((__m512i)v, 2));
    _mm_storeu_si128((void *)(p + 3 * stride), _mm512_extracti32x4_epi32((__m512i)v, 3));
}

VEC_INLINE vec_words vec_all_pairs(int32_t pair) { return (vec_words)_mm512_set1_epi32(pair); }
VEC_INLINE vec_floats vec_all(float x) { return (vec_floats)_mm512_set1_ps(x); }

/* In each 16 bytes: the sum of v[0]'s four lanes, of v[1]'s, ... */
VEC_INLINE vec_ints vec_sums_of_four(const vec_ints v[4])
{
    const __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32((__m512i)v[0], (__m512i)v[1]), _mm512_unpackhi_epi32((__m512i)v[0], (__m512i)v[1]));
    const __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32((__m512i)v[2], (__m512i)v[3]), _mm512_unpackhi_epi32((__m512i)v[2], (__m512i)v[3]));
    return (vec_ints)_mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

VEC_INLINE vec_words vec_look_up(const uint8_t table[16], vec_words index)
{
    return (vec_words)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), (__m512i)index);
}

/* Part `part` of a vector of 64 bytes that is gathered from four pieces of 16 bytes, or two of 32, `stride` bytes apart. */
VEC_INLINE vec_words vec_of_16s(const uint8_t *p, int stride, int part)
{
    (void)part;
    const __m256i low =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)p)), _mm_loadu_si128((const void *)(p + stride)), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(p + 2 * stride))),
                                                 _mm_loadu_si128((const void *)(p + 3 * stride)), 1);
    return (vec_words)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

VEC_INLINE vec_words vec_of_32s(const uint8_t *p, int stride, int part)
{
    (void)part;
    return (vec_words)_mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)p)),
                                         _mm256_loadu_si256((const void *)(p + stride)), 1);
}

/* 32 bytes twice, the second time with 16-bit words shifted right by `step`. */
VEC_INLINE vec_words vec_twice(const uint8_t *p, const int step, int part)
{
    (void)part;
    const __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p));
    const __m512i steps = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16((short)step), 1);
    return (vec_words)_mm512_srlv_epi16(both, steps);
}

/* out[l] = y[index[l]] for all 16 lanes. */
VEC_INLINE void vec_spread(const eight_floats *y, const int32_t index[16], vec_floats out[VEC_PARTS])
{
    out[0] = (vec_floats)_mm512_permutexvar_ps(_mm512_loadu_si512(index), _mm512_castps256_ps512((__m256)*y));
}

VEC_INLINE void vec_from_signed_bytes(const uint8_t *p, const uint8_t order[16], vec_floats out[VEC_PARTS])
{
    const __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128((const void *)p), _mm_loadu_si128((const void *)order));
    out[0] = (vec_floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

#elif defined(__AVX2__)

VEC_INLINE vec_ints vec_pairs(vec_words a, vec_words b) { return (vec_ints)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
VEC_INLINE vec_ints vec_add_pairs(vec_ints sum, vec_words a, vec_words b) { return sum + vec_pairs(a, b); }

VEC_INLINE void vec_transpose_4(vec_ints v[4])
{
    const __m256i a = _mm256_unpacklo_epi32((__m256i)v[0], (__m256i)v[1]), b = _mm256_unpackhi_epi32((__m256i)v[0], (__m256i)v[1]);
    const __m256i c = _mm256_unpacklo_epi32((__m256i)v[2], (__m256i)v[3]), d = _mm256_unpackhi_epi32((__m256i)v[2], (__m256i)v[3]);
    v[0] = (vec_ints)_mm256_unpacklo_epi64(a, c);
    v[1] = (vec_ints)_mm256_unpackhi_epi64(a, c);
    v[2] = (vec_ints)_mm256_unpacklo_epi64(b, d);
    v[3] = (vec_ints)_mm256_unpackhi_epi64(b, d);
}

VEC_INLINE void vec_store_16s(uint8_t *p, int64_t stride, vec_ints v)
{
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128((__m256i)v));
    _mm_storeu_si128((void *)(p + stride), _mm256_extracti128_si256((__m256i)v, 1));
}

VEC_INLINE vec_words vec_all_pairs(int32_t pair) { return (vec_words)_mm256_set1_epi32(pair); }
VEC_INLINE vec_floats vec_all(float x) { return (vec_floats)_mm256_set1_ps(x); }

VEC_INLINE vec_ints vec_sums_of_four(const vec_ints v[4])
{
    const __m256i a =
        _mm256_add_epi32(_mm256_unpacklo_epi32((__m256i)v[0], (__m256i)v[1]), _mm256_unpackhi_epi32((__m256i)v[0], (__m256i)v[1]));
    const __m256i b =
        _mm256_add_epi32(_mm256_unpacklo_epi32((__m256i)v[2], (__m256i)v[3]), _mm256_unpackhi_epi32((__m256i)v[2], (__m256i)v[3]));
    return (vec_ints)_mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

VEC_INLINE vec_words vec_look_up(const uint8_t table[16], vec_words index)
{
    return (vec_words)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)), (__m256i)index);
}

VEC_INLINE vec_words vec_of_16s(const uint8_t *p, int stride, int part)
{
    const uint8_t *const q = p + 2 * part * stride;
    return (vec_words)_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)q)),
                                              _mm_loadu_si128((const void *)(q + stride)), 1);
}

VEC_INLINE vec_words vec_of_32s(const uint8_t *p, int stride, int part) { return vec_load(p + part * stride); }
VEC_INLINE vec_words vec_twice(const uint8_t *p, const int step, int part) { return vec_load(p) >> (uint16_t)(step * part); }

VEC_INLINE void vec_spread(const eight_floats *y, const int32_t index[16], vec_floats out[VEC_PARTS])
{
    for (int p = 0; p < VEC_PARTS; p++)
        out[p] = (vec_floats)_mm256_permutevar8x32_ps((__m256)*y, _mm256_loadu_si256((const void *)(index + p * VEC_LANES)));
}

VEC_INLINE void vec_from_signed_bytes(const uint8_t *p, const uint8_t order[16], vec_floats out[VEC_PARTS])
{
    const __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128((const void *)p), _mm_loadu_si128((const void *)order));
    out[0] = (vec_floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    out[1] = (vec_floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
}

#else

VEC_INLINE vec_ints vec_pairs(vec_words a, vec_words b)
{
#if defined(__SSE2__)
    return (vec_ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    return (vec_ints)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
#else
    vec_ints sums;
    for (int l = 0; l < VEC_LANES; l++) sums[l] = (int16_t)a[2 * l] * (int16_t)b[2 * l] + (int16_t)a[2 * l + 1] * (int16_t)b[2 * l + 1];
    return sums;
#endif
}

VEC_INLINE vec_ints vec_add_pairs(vec_ints sum, vec_words a, vec_words b) { return sum + vec_pairs(a, b); }

VEC_INLINE void vec_transpose_4(vec_ints v[4])
{
#if defined(__SSE2__)
    const __m128i a = _mm_unpacklo_epi32((__m128i)v[0], (__m128i)v[1]), b = _mm_unpackhi_epi32((__m128i)v[0], (__m128i)v[1]);
    const __m128i c = _mm_unpacklo_epi32((__m128i)v[2], (__m128i)v[3]), d = _mm_unpackhi_epi32((__m128i)v[2], (__m128i)v[3]);
    v[0] = (vec_ints)_mm_unpacklo_epi64(a, c);
    v[1] = (vec_ints)_mm_unpackhi_epi64(a, c);
    v[2] = (vec_ints)_mm_unpacklo_epi64(b, d);
    v[3] = (vec_ints)_mm_unpackhi_epi64(b, d);
#else
    vec_ints turned[4];
    for (int i = 0; i < 4; i++) turned[i] = (vec_ints){v[0][i], v[1][i], v[2][i], v[3][i]};
    memcpy(v, turned, sizeof turned);
#endif
}

VEC_INLINE void vec_store_16s(uint8_t *p, int64_t stride, vec_ints v)
{
    (void)stride;
    memcpy(p, &v, sizeof v);
}

VEC_INLINE vec_words vec_all_pairs(int32_t pair) { return (vec_words)(vec_ints){pair, pair, pair, pair}; }
VEC_INLINE vec_floats vec_all(float x) { return (vec_floats){x, x, x, x}; }

VEC_INLINE vec_ints vec_sums_of_four(const vec_ints v[4])
{
#if defined(__SSE2__)
    const __m128i a = _mm_add_epi32(_mm_unpacklo_epi32((__m128i)v[0], (__m128i)v[1]), _mm_unpackhi_epi32((__m128i)v[0], (__m128i)v[1]));
    const __m128i b = _mm_add_epi32(_mm_unpacklo_epi32((__m128i)v[2], (__m128i)v[3]), _mm_unpackhi_epi32((__m128i)v[2], (__m128i)v[3]));
    return (vec_ints)_mm_add_epi32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b));
#elif defined(__aarch64__)
    return (vec_ints)vpaddq_s32(vpaddq_s32((int32x4_t)v[0], (int32x4_t)v[1]), vpaddq_s32((int32x4_t)v[2], (int32x4_t)v[3]));
#else
    vec_ints sums;
    for (int j = 0; j < 4; j++) sums[j] = v[j][0] + v[j][1] + v[j][2] + v[j][3];
    return sums;
#endif
}

#if VEC_LOOKS_UP
VEC_INLINE vec_words vec_look_up(const uint8_t table[16], vec_words index)
{
    return (vec_words)vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)index);
}
#else

/* The excess of each byte over n, or 0. */
VEC_INLINE vec_bytes vec_above(vec_bytes v, uint8_t n)
{
#if defined(__SSE2__)
    return (vec_bytes)_mm_subs_epu8((__m128i)v, _mm_set1_epi8((char)n));
#else
    return (v - n) & (vec_bytes)(v > n);
#endif
}

/* The upper 16 bits of the products of signed 16-bit numbers. */
VEC_INLINE vec_words vec_upper_products(vec_words a, vec_words b)
{
#if defined(__SSE2__)
    return (vec_words)_mm_mulhi_epi16((__m128i)a, (__m128i)b);
#else
    vec_words upper;
    for (int i = 0; i < VEC_BYTES / 2; i++) upper[i] = (uint16_t)((uint32_t)((int16_t)a[i] * (int16_t)b[i]) >> 16);
    return upper;
#endif
}
#endif

VEC_INLINE vec_words vec_of_16s(const uint8_t *p, int stride, int part) { return vec_load(p + part * stride); }
VEC_INLINE vec_words vec_of_32s(const uint8_t *p, int stride, int part) { return vec_load(p + part / 2 * stride + part % 2 * 16); }

VEC_INLINE vec_words vec_twice(const uint8_t *p, const int step, int part)
{
    return vec_load(p + part % 2 * 16) >> (uint16_t)(part / 2 * step);
}

VEC_INLINE void vec_spread(const eight_floats *y, const int32_t index[16], vec_floats out[VEC_PARTS])
{
    float eight[8];
    memcpy(eight, y, sizeof eight);
    for (int l = 0; l < 16; l++) out[l / VEC_LANES][l % VEC_LANES] = eight[index[l]];
}

VEC_INLINE void vec_from_signed_bytes(const uint8_t *p, const uint8_t order[16], vec_floats out[VEC_PARTS])
{
    for (int l = 0; l < 16; l++) out[l / VEC_LANES][l % VEC_LANES] = (float)(int8_t)p[order[l]];
}

#endif

#ifndef __F16C__
/* Converts the bits of FP16 numbers: shifted into a float they are 2^112 too small, subnormals included. */
VEC_INLINE vec_floats vec_from_f16(vec_ints bits)
{
    const vec_ints magnitude = (bits & 0x7fff) << 13, special = (magnitude > 0x0f7fffff) & 0x7f800000; /* infinity, NaN */
    return (vec_floats)((vec_ints)((vec_floats)magnitude * 0x1p112f) | special | (bits & 0x8000) << 16);
}
#endif

/* Loads eight FP16 numbers, `stride` bytes apart. */
VEC_INLINE void load_f16_x8(const uint8_t *p, int stride, eight_floats *y)
{
#ifdef __F16C__
    const __m128i f16 =
        _mm_setr_epi16((short)apr_load_le16(p), (short)apr_load_le16(p + stride), (short)apr_load_le16(p + 2 * stride),
                       (short)apr_load_le16(p + 3 * stride), (short)apr_load_le16(p + 4 * stride), (short)apr_load_le16(p + 5 * stride),
                       (short)apr_load_le16(p + 6 * stride), (short)apr_load_le16(p + 7 * stride));
    *y = (eight_floats)_mm256_cvtph_ps(f16);
#else
    for (int half = 0; half < 2; half++, p += 4 * stride) {
        const vec_floats four = vec_from_f16(
            (vec_ints){apr_load_le16(p), apr_load_le16(p + stride), apr_load_le16(p + 2 * stride), apr_load_le16(p + 3 * stride)});
        memcpy((char *)y + half * (int)sizeof four, &four, sizeof four);
    }
#endif
}

/* Converts eight unsigned bytes. */
VEC_INLINE void eight_bytes(uint64_t bytes, eight_floats *y)
{
    for (int i = 0; i < 8; i++) (*y)[i] = (float)(bytes >> (8 * i) & 255);
}

/* Loads an FP16 number as load_f16_x8 does. */
VEC_INLINE float load_f16(const uint8_t *p)
{
#ifdef __F16C__
    return _cvtsh_ss(apr_load_le16(p));
#else
    return apr_f16_to_f32(apr_load_le16(p));
#endif
}

/* The sum in halves: lanes 0 to 7 and 8 to 15, then fours, pairs, the last two. */
VEC_INLINE float vec_total(const vec_floats v[VEC_PARTS])
{
    typedef float four_floats __attribute__((vector_size(16)));
#if defined(__AVX512BW__)
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256((__m512)v[0]), _mm512_extractf32x8_ps((__m512)v[0], 1));
    const four_floats s = (four_floats)_mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
#elif defined(__AVX2__)
    const __m256 eight = (__m256)(v[0] + v[1]);
    const four_floats s = (four_floats)_mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
#else
    const four_floats s = (v[0] + v[2]) + (v[1] + v[3]);
#endif
    return (s[0] + s[2]) + (s[1] + s[3]);
}

#endif
