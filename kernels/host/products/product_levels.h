/* product_levels.h - declares the products of each CPU level. Names end in the level's: the same source is compiled for each. */
#ifndef APR_KERNELS_HOST_PRODUCT_LEVELS_H
#define APR_KERNELS_HOST_PRODUCT_LEVELS_H

#include "kernels/host/products/products.h"

/* R(dtype, name, order): products with rounded inputs; P(dtype, name): with float32 inputs. */
/* clang-format off */
#define APR_PRODUCT_LIST(R, P) \
    R(Q8_0, q8_0, PLAIN) R(Q4_0, q4_0, NIBBLES_OF_16) R(Q4_1, q4_1, NIBBLES_OF_16) R(Q5_0, q5_0, NIBBLES_OF_16) \
    R(Q5_1, q5_1, NIBBLES_OF_16) R(MXFP4, mxfp4, NIBBLES_OF_16) R(IQ4_NL, iq4_nl, NIBBLES_OF_16) \
    R(Q4_K, q4_k, NIBBLES_OF_32) R(Q5_K, q5_k, NIBBLES_OF_32) R(Q6_K, q6_k, PLAIN) \
    P(F16, f16) P(BF16, bf16)
/* clang-format on */

#define APR_EACH_PRODUCT_LEVEL(X) X(plain) X(avx2) X(avx512) X(vnni)

#define APR_ROUNDED_PARAMETERS \
    (apr_product_rows rows, int64_t n, const apr_product_tile *x, int64_t stride, int n_tokens, float *out, int64_t out_stride)
#define APR_FLOAT_PARAMETERS \
    (apr_product_rows rows, int64_t n, const float *x, int64_t stride, int n_tokens, float *out, int64_t out_stride)
#define APR_UNPACK_PARAMETERS (const uint8_t *const rows[APR_PRODUCT_GEMM_ROWS], int64_t n, apr_product_gemm_rows *out)

#define APR_ROUNDED(dtype, name, order)                          \
    void apr_product_##name##_plain APR_ROUNDED_PARAMETERS;      \
    void apr_product_##name##_avx2 APR_ROUNDED_PARAMETERS;       \
    void apr_product_##name##_avx512 APR_ROUNDED_PARAMETERS;     \
    void apr_product_##name##_vnni APR_ROUNDED_PARAMETERS;       \
    bool apr_product_unpack_##name##_plain APR_UNPACK_PARAMETERS;  \
    bool apr_product_unpack_##name##_avx2 APR_UNPACK_PARAMETERS;   \
    bool apr_product_unpack_##name##_avx512 APR_UNPACK_PARAMETERS; \
    bool apr_product_unpack_##name##_vnni APR_UNPACK_PARAMETERS;
#define APR_OF_FLOATS(dtype, name)                         \
    void apr_product_##name##_plain APR_FLOAT_PARAMETERS;  \
    void apr_product_##name##_avx2 APR_FLOAT_PARAMETERS;   \
    void apr_product_##name##_avx512 APR_FLOAT_PARAMETERS; \
    void apr_product_##name##_vnni APR_FLOAT_PARAMETERS;
APR_PRODUCT_LIST(APR_ROUNDED, APR_OF_FLOATS)
#undef APR_OF_FLOATS
#undef APR_ROUNDED

#define APR_ROUNDING(level)                                                                                                               \
    void apr_product_round_##level(const float *x, int64_t n, apr_product_order order, apr_product_tile *tiles);                          \
    void apr_product_gemm_round_##level(const float *x, int64_t n, apr_product_order order, int t, apr_product_gemm_inputs *out);         \
    void apr_product_gemm_##level(const apr_product_gemm_rows *rows, bool has_minimums, const apr_product_gemm_inputs *inputs, int64_t n, \
                                  int n_tokens, int n_rows, float *out, int64_t out_stride);
APR_EACH_PRODUCT_LEVEL(APR_ROUNDING)
#undef APR_ROUNDING

#endif
