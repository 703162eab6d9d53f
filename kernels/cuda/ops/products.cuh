/* products.cuh - matrix products of many tokens through cuBLASLt, whose choice of a way to compute one is asked for once.
 *
 * A product is out[t][r] = sum of weights[r][i] * inputs[t][i], float32 sums of FP16 or FP8 numbers, which may be left as FP16. What is
 * chosen depends on its sizes, types and how its operands are aligned, of tokens on about how many there are; a device remembers the
 * choices of the last products. */
#ifndef APR_KERNELS_CUDA_PRODUCTS_CUH
#define APR_KERNELS_CUDA_PRODUCTS_CUH

#include "kernels/cuda/device/device.cuh"

typedef struct apr_cuda_product {
    cudaDataType_t type; /* of both operands: CUDA_R_16F or CUDA_R_8F_E4M3 */
    int64_t n_rows, n_tokens, n_in;
    int64_t row_stride;           /* of weights and inputs */
    const void *weights, *inputs; /* [n_rows, row_stride], [n_tokens, row_stride], the first n_in of each */
    float *out;                   /* [n_tokens, out_stride], the first n_rows of each */
    int64_t out_stride;
    bool adds;            /* to what is in out */
    const float *factors; /* [2] on the device: of the sums, and of what is in out. NULL: 2^exponent, and as `adds` says */
    bool to_halves;       /* out has FP16 numbers, rounded once, after they were multiplied */
    int exponent;
} apr_cuda_product;

/* The ways that cuBLASLt proposes, in its order but for one that fills the device better, until one works; for FP16 then cuBLAS' own.
 * device->blas has been started. */
cublasStatus_t apr_cuda_multiply(apr_cuda_device *device, const apr_cuda_product *product);

/* For measurements: the product goes that way from now on, if it has so many; *waves: of tiles, one on each multiprocessor. Answers how
 * many ways cuBLASLt proposes. */
int apr_cuda_take_way(apr_cuda_device *device, const apr_cuda_product *product, int way, float *waves);

/* A product of FP16 numbers without cuBLAS: right, and much slower. */
cudaError_t apr_cuda_multiply_slowly(const apr_cuda_product *product, cudaStream_t stream);

#endif
