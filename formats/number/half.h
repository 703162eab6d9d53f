/* half.h - the small floating-point formats, encoded and decoded bit by bit without compiler support.
 *
 *            sign exponent mantissa  bias   largest   special
 *   f16        1      5       10      15     65504    inf, NaN
 *   bf16       1      8        7     127   3.39e38    inf, NaN
 *   f8_e4m3    1      4        3       7       448    NaN is 0x7f/0xff, no infinity ("e4m3fn")
 *   f8_e5m2    1      5        2      15     57344    inf, NaN
 *   e8m0       0      8        0     127     2^127    0xff is NaN; a power of two, the scale of OCP MX blocks
 *
 * Decoding is exact. Encoding rounds to nearest, ties to even; f16, bf16 and e5m2 overflow to infinity, e4m3 saturates at
 * 448 (what checkpoints expect); NaN stays NaN. test_half.c tests all values. */
#ifndef APR_FORMATS_HALF_H
#define APR_FORMATS_HALF_H

#include <stdint.h>
#include <string.h>

/* CUDA code uses the same functions on the device. */
#ifdef __CUDACC__
#define APR_HOST_DEVICE __host__ __device__
#else
#define APR_HOST_DEVICE
#endif

APR_HOST_DEVICE static inline uint32_t apr_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
APR_HOST_DEVICE static inline float apr_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

APR_HOST_DEVICE static inline float apr_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;

    if (exponent == 0x1f) return apr_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return apr_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    const float subnormal = (float)mantissa * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

/* Rounds the magnitude bits of a float to `mantissa_bits`; `min_exponent` is the unbiased exponent of the format's smallest normal
 * number. The result is the format's own encoding, so overflow shows as a number above the largest one. */
APR_HOST_DEVICE static inline uint32_t apr_round_magnitude(uint32_t bits, int mantissa_bits, int min_exponent)
{
    const int exponent = (int)(bits >> 23) - 127;
    const uint32_t significand = bits >> 23 ? (bits & 0x7fffff) | 0x800000 : bits & 0x7fffff;
    const int shift = 23 - mantissa_bits + (exponent < min_exponent ? min_exponent - exponent : 0);

    if (shift > 24) return 0; /* below half of the smallest subnormal */
    const uint32_t rounded = (significand + (1u << (shift - 1)) - 1 + (significand >> shift & 1)) >> shift;
    /* a normal number's hidden bit adds 1 to the exponent field that is counted from min_exponent */
    return exponent < min_exponent ? rounded : rounded + ((uint32_t)(exponent - min_exponent) << mantissa_bits);
}

APR_HOST_DEVICE static inline uint16_t apr_f32_to_f16(float f)
{
    const uint32_t bits = apr_f32_bits(f), magnitude = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));            /* NaN, made quiet */
    const uint32_t rounded = magnitude >= 0x47800000 ? 0x7c00 : apr_round_magnitude(magnitude, 10, -14); /* 0x47800000 is 2^16 */
    return (uint16_t)(sign | rounded);
}

APR_HOST_DEVICE static inline float apr_bf16_to_f32(uint16_t b) { return apr_f32_from_bits((uint32_t)b << 16); }

APR_HOST_DEVICE static inline uint16_t apr_f32_to_bf16(float f)
{
    const uint32_t bits = apr_f32_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN, made quiet */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* No branches, so that loops over it vectorize, and no float32 subnormals, which are slow: a number from 0 to 15 times a power
 * of two. */
APR_HOST_DEVICE static inline float apr_e4m3_to_f32(uint8_t v)
{
    const uint32_t sign = (uint32_t)(v & 0x80) << 24, magnitude = v & 0x7f, field = magnitude >> 3, is_normal = field != 0;
    const float significand = (float)(int)((magnitude & 7) + 8 * is_normal);
    const uint32_t value = apr_f32_bits(significand * apr_f32_from_bits((field + 1 - is_normal + 117) << 23)); /* exact */
    return apr_f32_from_bits(sign | (magnitude == 0x7f ? 0x7fc00000u : value));
}

APR_HOST_DEVICE static inline uint8_t apr_f32_to_e4m3(float f)
{
    const uint32_t bits = apr_f32_bits(f), magnitude = bits & 0x7fffffff;
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);

    if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7f);
    const uint32_t rounded = magnitude >= 0x43e00000 ? 0x7e : apr_round_magnitude(magnitude, 3, -6); /* 0x43e00000 is 448 */
    return (uint8_t)(sign | rounded);
}

APR_HOST_DEVICE static inline float apr_e5m2_to_f32(uint8_t v) { return apr_f16_to_f32((uint16_t)(v << 8)); }

APR_HOST_DEVICE static inline uint8_t apr_f32_to_e5m2(float f)
{
    const uint32_t bits = apr_f32_bits(f), magnitude = bits & 0x7fffffff;
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);

    if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7e);
    const uint32_t rounded = magnitude >= 0x47800000 ? 0x7c : apr_round_magnitude(magnitude, 2, -14);
    return (uint8_t)(sign | rounded);
}

/* 2^(e-127); 0xff is NaN, 0 is the subnormal 2^-127. */
APR_HOST_DEVICE static inline float apr_e8m0_to_f32(uint8_t e)
{
    return apr_f32_from_bits(e == 0xff ? 0x7fc00000u : e == 0 ? 0x00400000u : (uint32_t)e << 23);
}

#endif
