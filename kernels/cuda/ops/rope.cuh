/* rope.cuh - a pair of numbers turned by an angle, the same bits whichever kernel does it. */
#ifndef APR_KERNELS_CUDA_ROPE_CUH
#define APR_KERNELS_CUDA_ROPE_CUH

#include <cuda_runtime.h>

static __device__ __forceinline__ float2 turned(float first, float second, float cosine, float sine)
{
    return make_float2(fmaf(first, cosine, -(second * sine)), fmaf(second, cosine, first * sine));
}

#endif
