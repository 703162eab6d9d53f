/* simd.h - a vector of float32, as wide as the CPU level that a file is compiled for: 16 lanes with AVX-512, 8 otherwise.
 *
 * The encoders of this folder are one source, compiled once for each level (APR_LEVEL names it, the Makefile sets the instructions). A
 * lane does what kernels/ref does with one float, operation by operation, so the bytes are the same: no contraction, true divisions, and
 * minimum and maximum as MINPS and MAXPS define them (the second operand if one is NaN, and for two zeros). A fused operation is used
 * only where both factors are small integers, whose products and sums are exact anyway.
 *
 * A mask has one reference value a lane. Only files compiled for each level may include this. */
#ifndef APR_KERNELS_HOST_SIMD_H
#define APR_KERNELS_HOST_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define WIDE_JOIN_(a, b) a##_##b
#define WIDE_JOIN(a, b)  WIDE_JOIN_(a, b)
#define WIDE_NAME(name)  WIDE_JOIN(name, APR_LEVEL) /* the name in this level: encode_q4_k_avx2 */
#define WIDE_INLINE      static inline __attribute__((always_inline))

#if defined(__AVX512F__)

enum { WIDE = 16 };
typedef __m512 wide;
typedef __mmask16 wide_mask;

WIDE_INLINE wide wide_set(float x) { return _mm512_set1_ps(x); }
WIDE_INLINE wide wide_load(const float *p) { return _mm512_loadu_ps(p); }
WIDE_INLINE void wide_store(float *p, wide a) { _mm512_storeu_ps(p, a); }
WIDE_INLINE wide wide_add(wide a, wide b) { return _mm512_add_ps(a, b); }
WIDE_INLINE wide wide_sub(wide a, wide b) { return _mm512_sub_ps(a, b); }
WIDE_INLINE wide wide_mul(wide a, wide b) { return _mm512_mul_ps(a, b); }
WIDE_INLINE wide wide_div(wide a, wide b) { return _mm512_div_ps(a, b); }
WIDE_INLINE wide wide_min(wide a, wide b) { return _mm512_min_ps(a, b); }
WIDE_INLINE wide wide_max(wide a, wide b) { return _mm512_max_ps(a, b); }
WIDE_INLINE wide wide_abs(wide a) { return _mm512_abs_ps(a); }
WIDE_INLINE wide wide_minus(wide a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
/* a * b + c of integers whose sum is exact */
WIDE_INLINE wide wide_integer_fma(wide a, wide b, wide c) { return _mm512_fmadd_ps(a, b, c); }
WIDE_INLINE wide wide_truncate(wide a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
WIDE_INLINE wide_mask wide_less(wide a, wide b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
WIDE_INLINE wide_mask wide_at_most(wide a, wide b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
WIDE_INLINE wide_mask wide_differs(wide a, wide b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
WIDE_INLINE wide_mask wide_both(wide_mask a, wide_mask b) { return (wide_mask)(a & b); }
WIDE_INLINE wide_mask wide_either(wide_mask a, wide_mask b) { return (wide_mask)(a | b); }
WIDE_INLINE bool wide_any(wide_mask m) { return m != 0; }
WIDE_INLINE bool wide_all(wide_mask m) { return m == 0xffff; }
WIDE_INLINE wide wide_choose(wide_mask m, wide yes, wide no) { return _mm512_mask_blend_ps(m, no, yes); }
WIDE_INLINE wide wide_where(wide_mask m, wide a) { return _mm512_maskz_mov_ps(m, a); } /* 0 where the mask is false */
/* The bits of the lanes, as uint32. */
typedef __m512i wide_bits;
WIDE_INLINE wide_bits wide_bits_of(wide a) { return _mm512_castps_si512(a); }
WIDE_INLINE wide wide_from_bits(wide_bits a) { return _mm512_castsi512_ps(a); }
WIDE_INLINE wide_bits wide_bits_set(uint32_t x) { return _mm512_set1_epi32((int)x); }
WIDE_INLINE wide_bits wide_bits_add(wide_bits a, wide_bits b) { return _mm512_add_epi32(a, b); }
WIDE_INLINE wide_bits wide_bits_and(wide_bits a, wide_bits b) { return _mm512_and_si512(a, b); }
WIDE_INLINE wide_bits wide_bits_or(wide_bits a, wide_bits b) { return _mm512_or_si512(a, b); }
WIDE_INLINE wide_bits wide_bits_right(wide_bits a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
WIDE_INLINE wide_bits wide_bits_left(wide_bits a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
/* Converts uint32 below 2^31 to floats; bytes to uint32. */
WIDE_INLINE wide wide_from_words(wide_bits a) { return _mm512_cvtepi32_ps(a); }
WIDE_INLINE wide_bits wide_bits_load_bytes(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
/* Stores the low byte of each lane. */
WIDE_INLINE void wide_bits_store_bytes(void *p, wide_bits a) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(a)); }

/* Stores small integers as bytes, one a lane. */
WIDE_INLINE void wide_store_bytes(void *p, wide a) { wide_bits_store_bytes(p, _mm512_cvttps_epi32(a)); }
/* Converts to FP16 as apr_f32_to_f16 does, except for NaN. */
WIDE_INLINE void wide_store_f16(void *p, wide a)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#elif defined(__AVX2__)

enum { WIDE = 8 };
typedef __m256 wide;
typedef __m256 wide_mask; /* all bits of a lane, or none */

WIDE_INLINE wide wide_set(float x) { return _mm256_set1_ps(x); }
WIDE_INLINE wide wide_load(const float *p) { return _mm256_loadu_ps(p); }
WIDE_INLINE void wide_store(float *p, wide a) { _mm256_storeu_ps(p, a); }
WIDE_INLINE wide wide_add(wide a, wide b) { return _mm256_add_ps(a, b); }
WIDE_INLINE wide wide_sub(wide a, wide b) { return _mm256_sub_ps(a, b); }
WIDE_INLINE wide wide_mul(wide a, wide b) { return _mm256_mul_ps(a, b); }
WIDE_INLINE wide wide_div(wide a, wide b) { return _mm256_div_ps(a, b); }
WIDE_INLINE wide wide_min(wide a, wide b) { return _mm256_min_ps(a, b); }
WIDE_INLINE wide wide_max(wide a, wide b) { return _mm256_max_ps(a, b); }
WIDE_INLINE wide wide_abs(wide a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
WIDE_INLINE wide wide_minus(wide a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
WIDE_INLINE wide wide_integer_fma(wide a, wide b, wide c) { return _mm256_fmadd_ps(a, b, c); }
WIDE_INLINE wide wide_truncate(wide a) { return _mm256_round_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
WIDE_INLINE wide_mask wide_less(wide a, wide b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
WIDE_INLINE wide_mask wide_at_most(wide a, wide b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
WIDE_INLINE wide_mask wide_differs(wide a, wide b) { return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ); }
WIDE_INLINE wide_mask wide_both(wide_mask a, wide_mask b) { return _mm256_and_ps(a, b); }
WIDE_INLINE wide_mask wide_either(wide_mask a, wide_mask b) { return _mm256_or_ps(a, b); }
WIDE_INLINE bool wide_any(wide_mask m) { return _mm256_movemask_ps(m) != 0; }
WIDE_INLINE bool wide_all(wide_mask m) { return _mm256_movemask_ps(m) == 0xff; }
WIDE_INLINE wide wide_choose(wide_mask m, wide yes, wide no) { return _mm256_blendv_ps(no, yes, m); }
WIDE_INLINE wide wide_where(wide_mask m, wide a) { return _mm256_and_ps(m, a); }
typedef __m256i wide_bits;
WIDE_INLINE wide_bits wide_bits_of(wide a) { return _mm256_castps_si256(a); }
WIDE_INLINE wide wide_from_bits(wide_bits a) { return _mm256_castsi256_ps(a); }
WIDE_INLINE wide_bits wide_bits_set(uint32_t x) { return _mm256_set1_epi32((int)x); }
WIDE_INLINE wide_bits wide_bits_add(wide_bits a, wide_bits b) { return _mm256_add_epi32(a, b); }
WIDE_INLINE wide_bits wide_bits_and(wide_bits a, wide_bits b) { return _mm256_and_si256(a, b); }
WIDE_INLINE wide_bits wide_bits_or(wide_bits a, wide_bits b) { return _mm256_or_si256(a, b); }
WIDE_INLINE wide_bits wide_bits_right(wide_bits a, int n) { return _mm256_srli_epi32(a, n); }
WIDE_INLINE wide_bits wide_bits_left(wide_bits a, int n) { return _mm256_slli_epi32(a, n); }
WIDE_INLINE wide wide_from_words(wide_bits a) { return _mm256_cvtepi32_ps(a); }
WIDE_INLINE wide_bits wide_bits_load_bytes(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
WIDE_INLINE void wide_bits_store_bytes(void *p, wide_bits a)
{
    const __m256i low = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, /* in each 128 bits */
                                         0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i bytes = _mm256_shuffle_epi8(a, low);
    _mm_storel_epi64(p, _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
}
WIDE_INLINE void wide_store_bytes(void *p, wide a) { wide_bits_store_bytes(p, _mm256_cvttps_epi32(a)); }
WIDE_INLINE void wide_store_f16(void *p, wide a) { _mm_storeu_si128(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }

#else

#include "formats/number/half.h"

/* Two vectors of four, which SSE2 and NEON have. The compiler implements their operations. */
enum { WIDE = 8 };
typedef float wide_4 __attribute__((vector_size(16)));
typedef int32_t wide_4_bits __attribute__((vector_size(16)));
typedef struct wide {
    wide_4 part[2];
} wide;
typedef struct wide_mask {
    wide_4_bits part[2];
} wide_mask;

#define WIDE_PARTS(result, ...)                                       \
    do {                                                              \
        for (int i = 0; i < 2; i++) (result).part[i] = (__VA_ARGS__); \
    } while (0)

WIDE_INLINE wide wide_set(float x) { return (wide){{{x, x, x, x}, {x, x, x, x}}}; }
WIDE_INLINE wide wide_load(const float *p)
{
    wide a;
    memcpy(&a, p, sizeof a);
    return a;
}
WIDE_INLINE void wide_store(float *p, wide a) { memcpy(p, &a, sizeof a); }
#define WIDE_OPERATION(name, operator)               \
    WIDE_INLINE wide name(wide a, wide b)            \
    {                                                \
        WIDE_PARTS(a, a.part[i] operator b.part[i]); \
        return a;                                    \
    }
WIDE_OPERATION(wide_add, +)
WIDE_OPERATION(wide_sub, -)
WIDE_OPERATION(wide_mul, *)
WIDE_OPERATION(wide_div, /)
#undef WIDE_OPERATION
#define WIDE_COMPARISON(name, operator)              \
    WIDE_INLINE wide_mask name(wide a, wide b)       \
    {                                                \
        wide_mask m;                                 \
        WIDE_PARTS(m, a.part[i] operator b.part[i]); \
        return m;                                    \
    }
WIDE_COMPARISON(wide_less, <)
WIDE_COMPARISON(wide_at_most, <=)
WIDE_COMPARISON(wide_differs, !=)
#undef WIDE_COMPARISON
WIDE_INLINE wide_mask wide_both(wide_mask a, wide_mask b)
{
    WIDE_PARTS(a, a.part[i] & b.part[i]);
    return a;
}
WIDE_INLINE wide_mask wide_either(wide_mask a, wide_mask b)
{
    WIDE_PARTS(a, a.part[i] | b.part[i]);
    return a;
}
WIDE_INLINE bool wide_any(wide_mask m)
{
    const wide_4_bits all = m.part[0] | m.part[1];
    return (all[0] | all[1] | all[2] | all[3]) != 0;
}
WIDE_INLINE bool wide_all(wide_mask m)
{
    const wide_4_bits all = m.part[0] & m.part[1];
    return (all[0] & all[1] & all[2] & all[3]) != 0;
}
WIDE_INLINE wide wide_choose(wide_mask m, wide yes, wide no)
{
    WIDE_PARTS(no, (wide_4)((m.part[i] & (wide_4_bits)yes.part[i]) | (~m.part[i] & (wide_4_bits)no.part[i])));
    return no;
}
WIDE_INLINE wide wide_where(wide_mask m, wide a)
{
    WIDE_PARTS(a, (wide_4)(m.part[i] & (wide_4_bits)a.part[i]));
    return a;
}
WIDE_INLINE wide wide_min(wide a, wide b) { return wide_choose(wide_less(a, b), a, b); }
WIDE_INLINE wide wide_max(wide a, wide b) { return wide_choose(wide_less(b, a), a, b); }
WIDE_INLINE wide wide_abs(wide a)
{
    WIDE_PARTS(a, (wide_4)((wide_4_bits)a.part[i] & 0x7fffffff));
    return a;
}
WIDE_INLINE wide wide_minus(wide a)
{
    WIDE_PARTS(a, -a.part[i]);
    return a;
}
WIDE_INLINE wide wide_integer_fma(wide a, wide b, wide c) { return wide_add(wide_mul(a, b), c); }
/* Truncates, for |a| < 2^31. */
WIDE_INLINE wide wide_truncate(wide a)
{
    WIDE_PARTS(a, __builtin_convertvector(__builtin_convertvector(a.part[i], wide_4_bits), wide_4));
    return a;
}
typedef uint32_t wide_4_words __attribute__((vector_size(16)));
typedef struct wide_bits {
    wide_4_words part[2];
} wide_bits;
WIDE_INLINE wide_bits wide_bits_of(wide a)
{
    wide_bits b;
    WIDE_PARTS(b, (wide_4_words)a.part[i]);
    return b;
}
WIDE_INLINE wide wide_from_bits(wide_bits a)
{
    wide b;
    WIDE_PARTS(b, (wide_4)a.part[i]);
    return b;
}
WIDE_INLINE wide_bits wide_bits_set(uint32_t x) { return (wide_bits){{{x, x, x, x}, {x, x, x, x}}}; }
WIDE_INLINE wide_bits wide_bits_add(wide_bits a, wide_bits b)
{
    WIDE_PARTS(a, a.part[i] + b.part[i]);
    return a;
}
WIDE_INLINE wide_bits wide_bits_and(wide_bits a, wide_bits b)
{
    WIDE_PARTS(a, a.part[i] & b.part[i]);
    return a;
}
WIDE_INLINE wide_bits wide_bits_or(wide_bits a, wide_bits b)
{
    WIDE_PARTS(a, a.part[i] | b.part[i]);
    return a;
}
WIDE_INLINE wide_bits wide_bits_right(wide_bits a, int n)
{
    WIDE_PARTS(a, a.part[i] >> (unsigned)n);
    return a;
}
WIDE_INLINE wide_bits wide_bits_left(wide_bits a, int n)
{
    WIDE_PARTS(a, a.part[i] << (unsigned)n);
    return a;
}
WIDE_INLINE wide wide_from_words(wide_bits a)
{
    wide b;
    WIDE_PARTS(b, __builtin_convertvector((wide_4_bits)a.part[i], wide_4));
    return b;
}
WIDE_INLINE wide_bits wide_bits_load_bytes(const void *p)
{
    const uint8_t *const bytes = p;
    uint32_t words[WIDE];
    wide_bits a;
    for (int i = 0; i < WIDE; i++) words[i] = bytes[i];
    memcpy(&a, words, sizeof a);
    return a;
}
WIDE_INLINE void wide_bits_store_bytes(void *p, wide_bits a)
{
    uint8_t *const bytes = p;
    for (int i = 0; i < WIDE; i++) bytes[i] = (uint8_t)a.part[i / 4][i % 4];
}
WIDE_INLINE void wide_store_bytes(void *p, wide a)
{
    uint8_t *const bytes = p;
    for (int i = 0; i < WIDE; i++) bytes[i] = (uint8_t)(int)a.part[i / 4][i % 4];
}
WIDE_INLINE void wide_store_f16(void *p, wide a)
{
    uint16_t f16[WIDE];
    for (int i = 0; i < WIDE; i++) f16[i] = apr_f32_to_f16(a.part[i / 4][i % 4]);
    memcpy(p, f16, sizeof f16);
}
#undef WIDE_PARTS

#endif

/* Packs two times 16 codes into 16 bytes: `low` into the low nibbles, `high` into the high ones. */
WIDE_INLINE void wide_pack_nibbles(void *p, const uint8_t *low, const uint8_t *high)
{
    typedef uint8_t bytes __attribute__((vector_size(16)));
    bytes a, b;
    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    a = (a & 0x0f) | b << 4;
    memcpy(p, &a, sizeof a);
}

/* Rounds to the nearest integer, ties to even, for |a| < 2^22: as apr_round_even. */
WIDE_INLINE wide wide_round(wide a) { return wide_sub(wide_add(a, wide_set(12582912.0f)), wide_set(12582912.0f)); }
/* As apr_clamp. */
WIDE_INLINE wide wide_clamp(wide a, float low, float high) { return wide_min(wide_max(a, wide_set(low)), wide_set(high)); }
/* As apr_clamp_finite: NaN becomes 0, and magnitudes are limited. */
WIDE_INLINE wide wide_tame(wide a, float limit)
{
    return wide_max(wide_min(wide_where(wide_at_most(wide_set(-__builtin_inff()), a), a), wide_set(limit)), wide_set(-limit));
}
/* As apr_sum8, of eight sums in each lane. */
WIDE_INLINE wide wide_sum8(const wide sum[8])
{
    return wide_add(wide_add(wide_add(sum[0], sum[4]), wide_add(sum[2], sum[6])),
                    wide_add(wide_add(sum[1], sum[5]), wide_add(sum[3], sum[7])));
}

#endif
