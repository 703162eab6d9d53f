/* reduce.cuh - sums and maxima over the threads of a warp or a block, in one fixed order. */
#ifndef APR_KERNELS_CUDA_REDUCE_CUH
#define APR_KERNELS_CUDA_REDUCE_CUH

#include <cuda_runtime.h>

/* Over the warp (32 lanes), or over each half of it (16). All 32 lanes take part, and every lane gets the result. */
template <int LANES, typename T> static __device__ __forceinline__ T sum_over(T x)
{
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

template <int LANES> static __device__ __forceinline__ float max_over(float x)
{
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

static __device__ __forceinline__ float warp_sum(float x) { return sum_over<32>(x); }
static __device__ __forceinline__ double warp_sum(double x) { return sum_over<32>(x); }
static __device__ __forceinline__ float warp_max(float x) { return max_over<32>(x); }
static __device__ __forceinline__ float half_warp_sum(float x) { return sum_over<16>(x); }
static __device__ __forceinline__ int half_warp_sum(int x) { return sum_over<16>(x); }
static __device__ __forceinline__ float half_warp_max(float x) { return max_over<16>(x); }

/* Over four neighbouring lanes, nearest lanes first. */
template <typename T> static __device__ __forceinline__ T quad_sum(T x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* Every thread of the block gets the sum; `parts` has a float per warp. All threads take part. */
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

/* The maximum of non-negative numbers. `parts` may be written again after the next barrier. */
template <int THREADS> static __device__ __forceinline__ float block_max(float x, float *parts)
{
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) x = fmaxf(x, parts[i]);
    return x;
}

/* The same for a number of threads that the launch decides: whole warps, at most MAX_THREADS. */
template <int MAX_THREADS> static __device__ __forceinline__ float block_max_of(float x, int n_threads, float *parts)
{
    const int thread = (int)threadIdx.x;
    x = warp_max(x);
    if (thread % 32 == 0) parts[thread / 32] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MAX_THREADS / 32; i++)
        if (i < n_threads / 32) x = fmaxf(x, parts[i]);
    return x;
}

#endif
