/* activations_i16.cuh - activations as int16 for integer products: a number is scale * (256 * high + low), both bytes signed, and 16 numbers share a
 * scale. High and low bytes are stored as two int8 planes.
 *
 * A group of 16 has 15 bits and a sign: an error of 2e-5 of its largest number, of which a product's sum keeps a part. Products of the
 * bytes with codes are integers, so the order of their sums is free. The kernel that makes numbers writes them in this form for the next
 * product: a tile for each 256 of them, the last one padded with zeros. */
#ifndef APR_KERNELS_CUDA_ACTIVATIONS_I16_CUH
#define APR_KERNELS_CUDA_ACTIVATIONS_I16_CUH

extern "C" {
#include "kernels/cuda/decode_gemv_args.h"
}

#include <cuda_runtime.h>

enum {
    I16_TILE = APR_ACTIVATIONS_I16_TILE, /* numbers of a tile: */
    I16_GROUP = 16,
    I16_LOW_AT = 256,    /* offset of the low bytes; the high bytes are at 0 */
    I16_SCALES_AT = 512, /* offset of the scales: a float for each group */
    I16_SUMS_AT = 576,   /* offset of the sums of each group's int16 numbers: int32 */
    I16_TILE_BYTES = APR_ACTIVATIONS_I16_TILE_BYTES,
    I16_MAX = 32512, /* 127 * 256, so that high bytes do not overflow */
};

#ifdef __CUDACC__
#include "kernels/cuda/device/reduce.cuh"

/* Writes number i of the vector; `max_abs` is the largest magnitude of its group. All 32 lanes take part: each half warp has a whole group,
 * in order. Lanes where `on` is false write nothing. */
static __device__ __forceinline__ void store_i16_of(uint8_t *activations, int64_t i, bool on, float value, float max_abs)
{
    const int whole = on ? __float2int_rn(value * (max_abs > 0.0f ? I16_MAX / max_abs : 0.0f)) : 0;
    const int sum = half_warp_sum(whole);
    if (!on) return;
    uint8_t *const tile = activations + i / I16_TILE * I16_TILE_BYTES;
    const int column = (int)(i % I16_TILE), high = (whole + 128) >> 8;
    tile[column] = (uint8_t)high;
    tile[I16_LOW_AT + column] = (uint8_t)(whole - 256 * high);
    if (column % I16_GROUP != 0) return;
    *(float *)(tile + I16_SCALES_AT + column / I16_GROUP * 4) = max_abs * (1.0f / I16_MAX);
    *(int *)(tile + I16_SUMS_AT + column / I16_GROUP * 4) = sum;
}

static __device__ __forceinline__ void store_i16(uint8_t *activations, int64_t i, bool on, float value)
{
    store_i16_of(activations, i, on, value, half_warp_max(on ? fabsf(value) : 0.0f));
}

/* The same for the four numbers from i on, a multiple of 4: four neighbouring lanes have a group. All 32 lanes take part. */
static __device__ __forceinline__ void store_i16_4(uint8_t *activations, int64_t i, bool on, float4 value)
{
    const float own = on ? fmaxf(fmaxf(fabsf(value.x), fabsf(value.y)), fmaxf(fabsf(value.z), fabsf(value.w))) : 0.0f;
    const float max_abs = quad_max(own);
    const float times = max_abs > 0.0f ? I16_MAX / max_abs : 0.0f;
    const int whole[4] = {__float2int_rn(value.x * times), __float2int_rn(value.y * times), __float2int_rn(value.z * times),
                          __float2int_rn(value.w * times)};
    const int sum = quad_sum(on ? whole[0] + whole[1] + whole[2] + whole[3] : 0);
    if (!on) return;
    uint8_t *const tile = activations + i / I16_TILE * I16_TILE_BYTES;
    const int column = (int)(i % I16_TILE);
    uint32_t high = 0, low = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int h = (whole[k] + 128) >> 8;
        high |= ((uint32_t)h & 255) << (8 * k);
        low |= ((uint32_t)(whole[k] - 256 * h) & 255) << (8 * k);
    }
    *(uint32_t *)(tile + column) = high;
    *(uint32_t *)(tile + I16_LOW_AT + column) = low;
    if (column % I16_GROUP != 0) return;
    *(float *)(tile + I16_SCALES_AT + column / I16_GROUP * 4) = max_abs * (1.0f / I16_MAX);
    *(int *)(tile + I16_SUMS_AT + column / I16_GROUP * 4) = sum;
}

#endif
#endif
