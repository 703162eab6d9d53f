/* small_gemm_fragments.cuh - writes numbers as inputs of the small GEMM: the power of two of a token, and pieces of 8 numbers as fragments. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_FRAGMENTS_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_FRAGMENTS_CUH

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/small_gemm/small_gemm.cuh"
#include "kernels/cuda/small_gemm/small_gemm_layout.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* The power of two that brings the largest number into [2^9, 2^10): the sum of 32 such numbers does not overflow FP16. Infinity stays. */
static __device__ __forceinline__ void power_for(float max_abs, float *times, float *back)
{
    const uint32_t e = max(__float_as_uint(max_abs) >> 23 & 255u, 10u);
    *times = e == 255 ? 1.0f : __uint_as_float((263 - e) << 23); /* 2^(9 - (e - 127)) */
    *back = e == 255 ? 1.0f : __uint_as_float((e - 9) << 23);
}

/* x rounded to 16 bits, and its value as float32. */
template <bool IS_BF16> static __device__ __forceinline__ uint32_t part_of_number(float x, float *worth)
{
    if constexpr (IS_BF16) {
        const __nv_bfloat16 h = __float2bfloat16_rn(x);
        *worth = __bfloat162float(h);
        return __bfloat16_as_ushort(h);
    } else {
        const __half h = __float2half_rn(x);
        *worth = __half2float(h);
        return __half_as_ushort(h);
    }
}

/* Four numbers of a step of 16 columns as lane t's two words of each part. Returns the sum of the first parts. */
template <bool IS_BF16> static __device__ __forceinline__ float split_four(float4 x, float times, uint32_t (&high)[2], uint32_t (&low)[2])
{
    const float v[4] = {x.x * times, x.y * times, x.z * times, x.w * times};
    uint32_t h[4], l[4];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float first, second;
        h[i] = part_of_number<IS_BF16>(v[i], &first);
        l[i] = part_of_number<IS_BF16>(v[i] - first, &second);
        if (isinf(first)) l[i] = 0;
        sum += first;
    }
    high[0] = h[0] | h[2] << 16, high[1] = h[1] | h[3] << 16; /* gemm_column */
    low[0] = l[0] | l[2] << 16, low[1] = l[1] | l[3] << 16;
    return sum;
}

/* 8 numbers: four of each of the two steps of a sub-block. */
typedef struct input_piece {
    float4 first, second;
} input_piece;

static __device__ __forceinline__ input_piece piece_of(const float4 *row, int i, bool there)
{
    const float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!there) return input_piece{zeros, zeros};
    return input_piece{__ldcg(row + i / 4 * 8 + i % 4), __ldcg(row + i / 4 * 8 + 4 + i % 4)};
}

static __device__ __forceinline__ float max_abs_of(float4 v) { return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))); }

/* Writes piece i of a slot. All lanes take part; those with `on` false write nothing. */
template <apr_small_gemm_layout LAYOUT>
static __device__ __forceinline__ void store_piece(const apr_small_gemm_inputs &to, int64_t slot, int i, bool on, const input_piece &piece,
                                                   float times)
{
    constexpr bool IS_BF16 = LAYOUT == APR_SMALL_GEMM_BF16;
    const int sub = i / 4, t = i % 4, n_subs = (int)(to.n_in / GEMM_SUB);
    uint32_t high[2][2], low[2][2];
    float sum = split_four<IS_BF16>(piece.first, times, high[0], low[0]);
    sum += split_four<IS_BF16>(piece.second, times, high[1], low[1]);
    sum = quad_sum(sum);
    if (!on) return;
    if constexpr (LAYOUT == APR_SMALL_GEMM_WGMMA) {
        for (int odd = 0; odd < 2; odd++)
            *(uint2 *)(to.fragments + wgmma_input_at(sub, to.n_tiles, slot, t, odd)) = make_uint2(high[0][odd], high[1][odd]);
    } else {
        uint8_t *const at = to.fragments + gemm_piece_at(sub, n_subs, slot, t);
        *(uint4 *)at = make_uint4(high[0][0], high[0][1], high[1][0], high[1][1]);
        *(uint4 *)(at + gemm_part_bytes(to.n_tiles, to.n_in)) = make_uint4(low[0][0], low[0][1], low[1][0], low[1][1]);
    }
    if (IS_BF16 || t > 1) return;
    float first, second;
    const uint32_t half = part_of_number<false>(sum, &first), rest = part_of_number<false>(isinf(first) ? 0.0f : sum - first, &second);
    const int64_t sum_at = LAYOUT == APR_SMALL_GEMM_WGMMA ? wgmma_sum_at(sub, to.n_tiles, slot, t) : gemm_sum_at(sub, n_subs, slot, t);
    *(uint16_t *)(to.sums + sum_at) = (uint16_t)(t == 0 ? half : rest);
}

#endif
