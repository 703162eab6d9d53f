/* reduce.cuh - sums and maxima over the threads of a warp or a block, in one fixed order. */
#ifndef APR_KERNELS_CUDA_REDUCE_CUH
#define APR_KERNELS_CUDA_REDUCE_CUH

#include <cuda_runtime.h>

/* Every lane gets the sum. */
static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

/* Of the 16 lanes of a half warp. */
static __device__ __forceinline__ float half_warp_sum(float x)
{
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

static __device__ __forceinline__ float half_warp_max(float x)
{
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

/* Every thread of the block gets the sum; `parts` has a float a warp. All threads take part. */
template <int THREADS> static __device__ __forceinline__ float block_sum(float x, float *parts)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) sum += parts[i];
    __syncthreads(); /* parts may be written again */
    return sum;
}

#endif
