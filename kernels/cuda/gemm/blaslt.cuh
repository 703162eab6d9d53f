/* blaslt.cuh - GEMMs of many tokens through cuBLASLt. Its algorithm for a problem is chosen once.
 *
 * A product is out[t][r] = sum of weights[r][i] * inputs[t][i]: float32 sums of FP16 or FP8 numbers, which may be stored as FP16. The
 * choice depends on sizes, types, alignment of the operands, and roughly on the number of tokens. A device remembers the last choices. */
#ifndef APR_KERNELS_CUDA_BLASLT_CUH
#define APR_KERNELS_CUDA_BLASLT_CUH

#include "kernels/cuda/device/device.cuh"

typedef struct apr_cuda_gemm {
    cudaDataType_t type; /* of both operands: CUDA_R_16F or CUDA_R_8F_E4M3 */
    int64_t n_rows, n_tokens, n_in;
    int64_t row_stride;           /* of weights and inputs */
    const void *weights, *inputs; /* [n_rows, row_stride], [n_tokens, row_stride], the first n_in of each */
    float *out;                   /* [n_tokens, out_stride], the first n_rows of each */
    int64_t out_stride;
    bool adds;            /* to the contents of out */
    const float *factors; /* [2] on the device: alpha and beta. NULL: 2^exponent, and 1 or 0 as `adds` says */
    bool to_f16;          /* out is FP16: sums are multiplied by 2^exponent, then rounded once */
    int exponent;
} apr_cuda_gemm;

/* Tries the algorithms that cuBLASLt proposes until one works, in its order, except that one that fills the device better goes first. For
 * FP16 it then tries plain cuBLAS. device->blas must have been started. */
cublasStatus_t apr_cuda_multiply(apr_cuda_device *device, const apr_cuda_gemm *product);

/* For benchmarks: forces algorithm number `algo`, if there are so many, for this product from now on. *waves: tiles per multiprocessor.
 * Returns how many algorithms cuBLASLt proposes. */
int apr_cuda_force_gemm_algorithm(apr_cuda_device *device, const apr_cuda_gemm *product, int algo, float *waves);

/* A product of FP16 numbers without cuBLAS: as accurate, and much slower. */
cudaError_t apr_cuda_multiply_scaled(const apr_cuda_gemm *product, cudaStream_t stream);

#endif
