/* decode_gemv.cuh - the decode GEMV: fused matrix-vector products of one token with packed matrices, limited by memory bandwidth. Integer products
 * on tensor cores, weights that are prefetched before the inputs are ready, and an epilogue that writes the next product's activations.
 * What is computed: kernels/cuda/decode_gemv_args.h.
 *
 * A row group is 16 rows, the rows of a tile. A thread block has whole row groups, its warps share their columns. The order of sums depends
 * only on shapes and the number of multiprocessors.
 *
 * Weights are requested while the previous kernel still runs (programmatic dependent launch, pdl.cuh). */
#ifndef APR_KERNELS_CUDA_DECODE_GEMV_CUH
#define APR_KERNELS_CUDA_DECODE_GEMV_CUH

#include "kernels/cuda/common/activations_i16.cuh"

/* Whether a thread block of such a product fits in that much shared memory. */
bool apr_cuda_decode_gemv_fits(apr_dtype dtype, int64_t n_out, int64_t n_in, int n_multiprocessors, int shared_bytes);
cudaError_t apr_cuda_decode_gemv(const apr_decode_gemv_args *args, int n_multiprocessors, cudaStream_t stream);
/* The chosen experts of one token, where apr_experts_have_decode_gemv is true, with the epilogue of `gemv` (api.h). cudaErrorNotSupported: they do not
 * fit. */
cudaError_t apr_cuda_decode_gemv_experts(const apr_experts_args *args, const apr_decode_gemv_args *gemv, int n_multiprocessors,
                                         cudaStream_t stream);
cudaError_t apr_cuda_decode_gemv_prepare(const apr_decode_gemv_inputs *args, cudaStream_t stream);
/* cudaErrorNotSupported: a cache of another type. */
cudaError_t apr_cuda_qkv_epilogue(const apr_qkv_epilogue_args *args, cudaStream_t stream);
/* Query, key and value as the products of many tokens left them: where they are, and the scales and biases that are still to be applied. */
typedef struct apr_cuda_unscaled_qkv {
    const float *scales;  /* [n_tokens] */
    const float *bias[3]; /* or NULL */
    const float *from[3]; /* NULL: where args have it */
    int64_t stride;       /* from one token to the next, for all three */
} apr_cuda_unscaled_qkv;

/* The QKV epilogue of args->store.n_tokens tokens. Only q.out is written as float32. */
cudaError_t apr_cuda_qkv_epilogue_many(const apr_qkv_epilogue_args *args, const apr_cuda_unscaled_qkv *unfinished, cudaStream_t stream);
/* Whether the QKV epilogue takes these arguments. */
bool apr_cuda_has_qkv_epilogue(const apr_qkv_epilogue_args *args);

/* Tiles rows (a multiple of 16) of a tiled type; `to` is where the first row's row group begins. */
cudaError_t apr_cuda_to_tiles(apr_dtype dtype, const uint8_t *rows, int64_t n_rows, int64_t n_in, uint8_t *to, cudaStream_t stream);

#endif
