/* simd_codecs.h - declares the codecs of each CPU level. Names end in the level's: the same source is compiled once for each. */
#ifndef APR_KERNELS_HOST_SIMD_CODECS_H
#define APR_KERNELS_HOST_SIMD_CODECS_H

#include "kernels/rows.h"

/* E(dtype, name): encoders and D(dtype, name): decoders of all levels. C(dtype, name): encoders and R(dtype, name): decoders of all
 * levels except plain: they need the CPU's FP16 conversion or its shuffles. Other codecs are the reference's. */
/* clang-format off */
#define APR_SIMD_LIST(E, D, C, R) \
    E(Q4_0, q4_0) E(Q4_1, q4_1) E(Q5_0, q5_0) E(Q5_1, q5_1) E(Q8_0, q8_0) \
    E(Q4_K, q4_k) E(Q5_K, q5_k) E(Q6_K, q6_k) E(MXFP4, mxfp4) E(F8_E4M3, f8_e4m3) \
    D(F8_E4M3, f8_e4m3) C(F16, f16) R(F16, f16) R(F8_E5M2, f8_e5m2) \
    R(MXFP4, mxfp4) R(NVFP4, nvfp4) R(IQ4_NL, iq4_nl) R(IQ4_XS, iq4_xs) \
    R(Q5_0, q5_0) R(Q5_1, q5_1) R(Q2_K, q2_k) R(Q1_0, q1_0) R(Q2_0, q2_0) R(APR_Q4, apr_q4) \
    R(IQ2_XXS, iq2_xxs) R(IQ2_XS, iq2_xs) R(IQ2_S, iq2_s) R(IQ3_XXS, iq3_xxs) R(IQ3_S, iq3_s) R(IQ1_S, iq1_s) R(IQ1_M, iq1_m)
/* clang-format on */

/* Encoders by importance of all levels; those of other types are the reference's. */
#define APR_SIMD_BY_LIST(X) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(MXFP4, mxfp4)

#define APR_EACH_LEVEL(X) X(plain) X(avx2) X(avx512)

#define APR_SIMD_ENCODER(dtype, name)                                             \
    void apr_encode_##name##_plain(const float *src, void *dst, int64_t n_elems); \
    void apr_encode_##name##_avx2(const float *src, void *dst, int64_t n_elems);  \
    void apr_encode_##name##_avx512(const float *src, void *dst, int64_t n_elems);
#define APR_SIMD_DECODER(dtype, name)                                             \
    void apr_decode_##name##_plain(const void *src, float *dst, int64_t n_elems); \
    void apr_decode_##name##_avx2(const void *src, float *dst, int64_t n_elems);  \
    void apr_decode_##name##_avx512(const void *src, float *dst, int64_t n_elems);
APR_SIMD_LIST(APR_SIMD_ENCODER, APR_SIMD_DECODER, APR_SIMD_ENCODER, APR_SIMD_DECODER)
#undef APR_SIMD_DECODER
#undef APR_SIMD_ENCODER

#define APR_SIMD_ENCODER_BY(dtype, name)                                                                      \
    void apr_encode_##name##_by_plain(const float *src, const float *importance, void *dst, int64_t n_elems); \
    void apr_encode_##name##_by_avx2(const float *src, const float *importance, void *dst, int64_t n_elems);  \
    void apr_encode_##name##_by_avx512(const float *src, const float *importance, void *dst, int64_t n_elems);
APR_SIMD_BY_LIST(APR_SIMD_ENCODER_BY)
#undef APR_SIMD_ENCODER_BY

#define APR_SIMD_OTHERS(level)                                                                      \
    void apr_encode_fp8_row_##level(const float *src, uint8_t *dst, float *scale, int64_t n_elems); \
    bool apr_all_within_##level(const float *x, int64_t n_elems, float low, float high);
APR_EACH_LEVEL(APR_SIMD_OTHERS)
#undef APR_SIMD_OTHERS

#endif
