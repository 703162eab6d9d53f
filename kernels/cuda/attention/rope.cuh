/* rope.cuh - the rotation of a pair of numbers, with the same bits in all kernels. */
#ifndef APR_KERNELS_CUDA_ROPE_CUH
#define APR_KERNELS_CUDA_ROPE_CUH

#include <cuda_runtime.h>

static __device__ __forceinline__ float2 rotated(float first, float second, float cosine, float sine)
{
    return make_float2(fmaf(first, cosine, -(second * sine)), fmaf(second, cosine, first * sine));
}

#endif
