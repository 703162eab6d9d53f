/* planes.cuh - inputs of products by integers: a number is scale * (256 * high + low), both bytes signed; 16 numbers share a scale.
 *
 * 15 bits and a sign for each group of 16: an error of 2e-5 of the group, of which a product's sum keeps a part. Products of the bytes with
 * codes are whole numbers, so that their order is free. What makes numbers leaves them in this form for whoever multiplies them: a tile
 * for each 256 of them, the last one filled with zeros. */
#ifndef APR_KERNELS_CUDA_PLANES_CUH
#define APR_KERNELS_CUDA_PLANES_CUH

extern "C" {
#include "kernels/cuda/flow_args.h"
}

#include <cuda_runtime.h>

enum {
    PLANES_COLUMNS = APR_PLANES_COLUMNS, /* of a tile: */
    PLANES_GROUP = 16,
    PLANES_LOW = 256,    /* high bytes from 0 on, then the low ones */
    PLANES_SCALES = 512, /* a float for each group */
    PLANES_SUMS = 576,   /* the sum of its whole numbers, int32 */
    PLANES_BYTES = APR_PLANES_BYTES,
    PLANES_LARGEST = 32512, /* 127 * 256: high bytes never overflow */
};

#ifdef __CUDACC__
#include "kernels/cuda/device/reduce.cuh"

/* Number i of the vector, of which `most` is the largest magnitude of its group. All 32 lanes take part: each half warp has a whole group,
 * in order; where `on` is false it writes nothing. */
static __device__ __forceinline__ void planes_put_of(uint8_t *planes, int64_t i, bool on, float value, float most)
{
    const int whole = on ? __float2int_rn(value * (most > 0.0f ? PLANES_LARGEST / most : 0.0f)) : 0;
    const int sum = half_warp_sum(whole);
    if (!on) return;
    uint8_t *const tile = planes + i / PLANES_COLUMNS * PLANES_BYTES;
    const int column = (int)(i % PLANES_COLUMNS), high = (whole + 128) >> 8;
    tile[column] = (uint8_t)high;
    tile[PLANES_LOW + column] = (uint8_t)(whole - 256 * high);
    if (column % PLANES_GROUP != 0) return;
    *(float *)(tile + PLANES_SCALES + column / PLANES_GROUP * 4) = most * (1.0f / PLANES_LARGEST);
    *(int *)(tile + PLANES_SUMS + column / PLANES_GROUP * 4) = sum;
}

static __device__ __forceinline__ void planes_put(uint8_t *planes, int64_t i, bool on, float value)
{
    planes_put_of(planes, i, on, value, half_warp_max(on ? fabsf(value) : 0.0f));
}

/* The same of four numbers from i on, a multiple of 4: four neighbouring lanes have a group. All 32 lanes take part. */
static __device__ __forceinline__ void planes_put_4(uint8_t *planes, int64_t i, bool on, float4 value)
{
    const float own = on ? fmaxf(fmaxf(fabsf(value.x), fabsf(value.y)), fmaxf(fabsf(value.z), fabsf(value.w))) : 0.0f;
    const float most = quad_max(own);
    const float times = most > 0.0f ? PLANES_LARGEST / most : 0.0f;
    const int whole[4] = {__float2int_rn(value.x * times), __float2int_rn(value.y * times), __float2int_rn(value.z * times),
                          __float2int_rn(value.w * times)};
    const int sum = quad_sum(on ? whole[0] + whole[1] + whole[2] + whole[3] : 0);
    if (!on) return;
    uint8_t *const tile = planes + i / PLANES_COLUMNS * PLANES_BYTES;
    const int column = (int)(i % PLANES_COLUMNS);
    uint32_t high = 0, low = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int h = (whole[k] + 128) >> 8;
        high |= ((uint32_t)h & 255) << (8 * k);
        low |= ((uint32_t)(whole[k] - 256 * h) & 255) << (8 * k);
    }
    *(uint32_t *)(tile + column) = high;
    *(uint32_t *)(tile + PLANES_LOW + column) = low;
    if (column % PLANES_GROUP != 0) return;
    *(float *)(tile + PLANES_SCALES + column / PLANES_GROUP * 4) = most * (1.0f / PLANES_LARGEST);
    *(int *)(tile + PLANES_SUMS + column / PLANES_GROUP * 4) = sum;
}

#endif
#endif
