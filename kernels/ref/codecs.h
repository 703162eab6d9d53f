/* codecs.h - the reference codecs by name, and helpers that several of them share.
 *
 * The arithmetic here is the definition of each codec. Sums that SIMD implementations do in lanes are sums in 8 lanes here: value i goes
 * to lane i % 8, and apr_sum8 adds the lanes in one fixed order. Multiply and add are never contracted (-ffp-contract=off). */
#ifndef APR_KERNELS_REF_CODECS_H
#define APR_KERNELS_REF_CODECS_H

#include "formats/number/blocks.h"
#include "formats/number/half.h"
#include "kernels/rows.h"

#include <float.h>

/* D(dtype, name) has a decoder; B(dtype, name) a decoder and an encoder; W(dtype, name) also an encoder by importance. Other types can
 * only be copied. */
/* clang-format off */
#define APR_REF_CODEC_LIST(D, B, W) \
    B(F32, f32) B(F16, f16) B(BF16, bf16) B(F64, f64) D(I8, i8) D(I16, i16) D(I32, i32) D(I64, i64) \
    D(U8, u8) D(U16, u16) D(U32, u32) D(U64, u64) D(BOOL, bool) B(F8_E4M3, f8_e4m3) D(F8_E5M2, f8_e5m2) D(E8M0, e8m0) \
    W(Q4_0, q4_0) W(Q4_1, q4_1) W(Q5_0, q5_0) W(Q5_1, q5_1) B(Q8_0, q8_0) D(Q8_1, q8_1) \
    W(Q2_K, q2_k) W(Q3_K, q3_k) W(Q4_K, q4_k) W(Q5_K, q5_k) W(Q6_K, q6_k) D(Q8_K, q8_k) \
    W(IQ1_S, iq1_s) W(IQ1_M, iq1_m) W(IQ2_XXS, iq2_xxs) W(IQ2_XS, iq2_xs) W(IQ2_S, iq2_s) W(IQ3_XXS, iq3_xxs) W(IQ3_S, iq3_s) \
    W(IQ4_NL, iq4_nl) W(IQ4_XS, iq4_xs) W(TQ1_0, tq1_0) W(TQ2_0, tq2_0) W(MXFP4, mxfp4) W(NVFP4, nvfp4) W(Q1_0, q1_0) W(Q2_0, q2_0) \
    D(APR_Q4, apr_q4) D(APR_Q8, apr_q8)
/* clang-format on */

#define APR_DECLARE_DECODER(id, name) void apr_ref_decode_##name(const void *src, float *dst, int64_t n_elems);
#define APR_DECLARE_BOTH(id, name)    APR_DECLARE_DECODER(id, name) void apr_ref_encode_##name(const float *src, void *dst, int64_t n_elems);
#define APR_DECLARE_THREE(id, name) \
    APR_DECLARE_BOTH(id, name) void apr_ref_encode_##name##_by(const float *src, const float *importance, void *dst, int64_t n_elems);
APR_REF_CODEC_LIST(APR_DECLARE_DECODER, APR_DECLARE_BOTH, APR_DECLARE_THREE)
#undef APR_DECLARE_THREE
#undef APR_DECLARE_BOTH
#undef APR_DECLARE_DECODER

/* The largest FP16 number, and so the largest scale. */
#define APR_F16_MAX 65504.0f

/* Clamps x for a block format with values up to `limit`: NaN becomes 0, larger magnitudes (also infinities) become the limit. */
APR_HOST_DEVICE static inline float apr_clamp_finite(float x, float limit)
{
    const float number = x == x ? x : 0.0f;
    const float bounded = number < limit ? number : limit;
    return bounded > -limit ? bounded : -limit;
}

APR_HOST_DEVICE static inline float apr_sum8(const float lane[8])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Rounds to the nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction. */
APR_HOST_DEVICE static inline float apr_round_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

/* Clamps x; compares as MINPS and MAXPS do. */
APR_HOST_DEVICE static inline float apr_clamp(float x, float low, float high)
{
    const float bounded = x > low ? x : low;
    return bounded < high ? bounded : high;
}

/* The weights of a block's values in its squared error: importance over its mean in the block, so that only ratios count, and clamped,
 * so that no sum of weights is 0 or overflows. Equal importances (also all 0) give weights of 1, as without importance. n is a multiple
 * of 8. */
#define APR_LEAST_WEIGHT 0x1p-10f
APR_HOST_DEVICE static inline void apr_block_weights(const float *importance, int n, float *weight)
{
    float lane[8] = {0.0f}, first = importance[0];
    bool all_equal = true;

    for (int i = 0; i < n; i++) {
        weight[i] = apr_clamp(importance[i], 0.0f, 1e30f); /* NaN is 0 */
        all_equal = all_equal && importance[i] == first;
        lane[i % 8] += weight[i];
    }
    const float mean = apr_sum8(lane) / (float)n;
    const bool is_plain = all_equal || !(mean > 0x1p-100f);
    for (int i = 0; i < n; i++) weight[i] = is_plain ? 1.0f : apr_clamp(weight[i] / mean, APR_LEAST_WEIGHT, 1024.0f);
}

#endif
