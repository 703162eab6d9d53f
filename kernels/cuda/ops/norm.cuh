/* norm.cuh - the arithmetic of norms, the same bits whichever kernel does it: which threads share a chunk, in which order they add. */
#ifndef APR_KERNELS_CUDA_NORM_CUH
#define APR_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/ops/ops.cuh"

enum {
    NORM_WARPS = 8,
    NORM_BLOCK = 32 * NORM_WARPS,
    NORM_WARP_CHUNK = 1024, /* a chunk of up to so many numbers is a warp's, others a block's; thread i adds i, i + n, i + 2 n, ... */
};

/* A chunk's sum by the threads that share it: one warp, or the whole block. */
template <bool IS_WARP> static __device__ __forceinline__ float norm_sum(float x, float *parts)
{
    return IS_WARP ? warp_sum(x) : block_sum<NORM_BLOCK>(x, parts);
}

/* What numbers are multiplied by: `squares` is the mean of their squares, or the sum where a norm is of length 1. */
static __device__ __forceinline__ float scale_of_squares(float squares, float eps) { return 1.0f / sqrtf(squares + eps); }

static __device__ __forceinline__ float norm_scale(const apr_norm_args &a, float sum_of_squares)
{
    return scale_of_squares(a.kind == APR_NORM_L2 ? sum_of_squares : sum_of_squares / (float)a.chunk, a.eps);
}

#endif
