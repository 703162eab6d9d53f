/* mma.cuh - a warp's tensor core products of 16 x 16 by 16 x 8 FP16 numbers, and the loads of their operands.
 *
 * In lane 4 g + t: a[0] is row g, columns 2 t and 2 t + 1; a[1] is the same of row g + 8; a[2] and a[3] are 8 columns further. b[0] is
 * column g, rows 2 t and 2 t + 1; b[1] is 8 rows further. d[0] and d[1] are row g, columns 2 t and 2 t + 1; d[2] and d[3] are those of row
 * g + 8. Products are exact; sums are float32, truncated rather than rounded by the tensor cores. */
#ifndef APR_KERNELS_CUDA_MMA_CUH
#define APR_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/device/ptx.cuh"

#include <cuda_fp16.h>
#include <stdint.h>

/* d += a * b. Before 8.0 there are only products of depth 8. */
static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    ptx_mma_f16_in_order(d, a[0], a[1], a[2], a[3], b0, b1);
#else
    ptx_mma_f16_in_order(d, a[0], a[1], b0);
    ptx_mma_f16_in_order(d, a[2], a[3], b1);
#endif
}

/* Four 8 x 8 matrices of FP16: lane l has the address of row l % 8 of matrix l / 8 (16 bytes, in shared memory). m[i] becomes row g,
 * columns 2 t and 2 t + 1 of matrix i, or transposed, column g, rows 2 t and 2 t + 1. */
static __device__ __forceinline__ void load_matrices(uint32_t (&m)[4], const uint8_t *row) { ptx_load_matrices(m, row); }

static __device__ __forceinline__ void load_transposed(uint32_t (&m)[4], const uint8_t *row) { ptx_load_matrices_transposed(m, row); }

/* Copies 16 bytes from device memory into shared memory, or writes zeros; asynchronous from 8.0 on. */
static __device__ __forceinline__ void copy_16(uint8_t *to, const uint8_t *from, bool there)
{
#if __CUDA_ARCH__ >= 800
    ptx_copy_16_or_zeros(to, from, there);
#else
    *(uint4 *)to = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#endif
}

/* The copies since the last call become a group. */
static __device__ __forceinline__ void end_copies(void)
{
#if __CUDA_ARCH__ >= 800
    ptx_close_copies();
#endif
}

/* Waits until all but this thread's LATEST groups of copies have arrived. */
template <int LATEST> static __device__ __forceinline__ void await_copies(void)
{
#if __CUDA_ARCH__ >= 800
    ptx_wait_for_copies<LATEST>();
#endif
}

/* Two numbers, the first in the low half. */
static __device__ __forceinline__ uint32_t pack_f16(float a, float b)
{
    const __half2 h = __floats2half2_rn(a, b);
    return *(const uint32_t *)&h;
}

/* Their rounding errors as FP16. */
static __device__ __forceinline__ uint32_t pack_remainders(float a, float b, uint32_t packed)
{
    const float2 h = __half22float2(*(const __half2 *)&packed);
    return pack_f16(a - h.x, b - h.y);
}

/* 2^x; below 2^-126 it is 0. */
static __device__ __forceinline__ float power_of_two(float x) { return ptx_exp2(x); }

#endif
