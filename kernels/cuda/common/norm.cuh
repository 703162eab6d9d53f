/* norm.cuh - the arithmetic of norms, with the same bits in all kernels: which threads share a chunk, and the order of its sum. */
#ifndef APR_KERNELS_CUDA_NORM_CUH
#define APR_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum {
    NORM_WARPS = 8,
    NORM_BLOCK = 32 * NORM_WARPS,
    NORM_WARP_CHUNK = 1024, /* largest chunk of a warp, blocks have larger ones; thread i adds i, i + n, i + 2 n, ... */
};

/* The sum over the threads that share a chunk: one warp, or the whole block. */
template <bool IS_WARP> static __device__ __forceinline__ float norm_sum(float x, float *parts)
{
    return IS_WARP ? warp_sum(x) : block_sum<NORM_BLOCK>(x, parts);
}

/* The norm's factor; `squares` is the mean of the squares, or their sum for a norm to length 1. */
static __device__ __forceinline__ float scale_of_squares(float squares, float eps) { return 1.0f / sqrtf(squares + eps); }

static __device__ __forceinline__ float norm_scale(const apr_norm_args &a, float sum_of_squares)
{
    return scale_of_squares(a.kind == APR_NORM_L2 ? sum_of_squares : sum_of_squares / (float)a.chunk, a.eps);
}

#endif
