/* canonical.cuh - dequantizes packed matrices in the canonical layout (kernels/repack.h), bit for bit as formats/tensor/packing.h defines them:
 *
 *     value[row, column] = T((level(code) - zero) * factor),    factor = scale * global_scale, or scale / global_scale
 *
 * The level of a code is looked up in shared memory, which put_levels fills: the same code for integers, floats and tables. */
#ifndef APR_KERNELS_CUDA_CANONICAL_CUH
#define APR_KERNELS_CUDA_CANONICAL_CUH

#include "kernels/cuda/common/weights.cuh"

#include <cuda_bf16.h>

/* E2M1: 0 .5 1 1.5 2 3 4 6, bit 3 is the sign. */
static __device__ __forceinline__ float e2m1_level(int code)
{
    const int m = code & 7;
    const float magnitude = m < 2 ? 0.5f * (float)m : 0.25f * (float)((2 + (m & 1)) << (m >> 1));
    return code & 8 ? -magnitude : magnitude;
}

/* Fills levels [1 << BITS], by all threads of the block. */
template <int BITS> static __device__ __forceinline__ void put_levels(const weight_view &v, float *levels)
{
    const int n_threads = (int)(blockDim.x * blockDim.y);
    for (int i = (int)(threadIdx.y * blockDim.x + threadIdx.x); i < 1 << BITS; i += n_threads) {
        float level = (float)i;
        if (v.canonical.level == APR_LEVEL_SIGNED && i >= 1 << (BITS - 1)) level -= (float)(1 << BITS);
        if (v.canonical.level == APR_LEVEL_E2M1) level = e2m1_level(i);
        if (v.canonical.level == APR_LEVEL_E4M3) level = fp8_pair<__NV_E4M3>((uint32_t)i).x;
        if (BITS == 4 && v.canonical.level == APR_LEVEL_TABLE) level = v.canonical.levels[i & 15];
        levels[i] = level;
    }
    __syncthreads();
}

/* What all numbers of a row share. */
struct canonical_row {
    const uint8_t *codes;
    const int32_t *groups; /* of each column; NULL: column / factor_columns */
    int64_t factors;       /* index of its first scale and zero point */
    float global_scale;
};

static __device__ __forceinline__ canonical_row canonical_row_of(const weight_view &v, int64_t row)
{
    const int64_t matrix = v.matrix_rows >= v.n_rows ? 0 : row / v.matrix_rows;
    canonical_row r;
    r.codes = v.data + row * v.row_bytes;
    r.groups = v.canonical.groups != NULL ? v.canonical.groups + matrix * v.n_in : NULL;
    r.factors = factors_of_row(v, row);
    r.global_scale = v.canonical.global_scales != NULL ? __ldg(v.canonical.global_scales + matrix) : 1.0f;
    return r;
}

static __device__ __forceinline__ float canonical_factor(const weight_view &v, const canonical_row &r, int64_t group)
{
    const float scale = factor_number(v, r.factors + group);
    return v.canonical.divides ? __fdiv_rn(scale, r.global_scale) : __fmul_rn(scale, r.global_scale);
}

static __device__ __forceinline__ float canonical_zero(const weight_view &v, const canonical_row &r, int64_t group)
{
    if (v.canonical.zeros == NULL) return v.canonical.zero_bias;
    const uint8_t byte = __ldg(v.canonical.zeros + r.factors + group);
    return v.canonical.zero_bias + (v.canonical.signed_zeros ? (float)(int8_t)byte : (float)byte);
}

static __device__ __forceinline__ float canonical_number(float level, float zero, float factor, apr_dtype dtype)
{
    const float value = __fmul_rn(__fsub_rn(level, zero), factor);
    if (dtype == APR_F16) return __half2float(__float2half_rn(value));
    return dtype == APR_BF16 ? __bfloat162float(__float2bfloat16_rn(value)) : value;
}

/* One number of any row. */
template <int BITS>
static __device__ __forceinline__ float canonical_value(const weight_view &v, const float *levels, const canonical_row &r, int64_t column)
{
    const int64_t group = r.groups != NULL ? __ldg(r.groups + column) : (uint32_t)column / (uint32_t)v.factor_columns;
    const uint32_t byte = __ldg(r.codes + (BITS == 8 ? column : column / 2));
    const float level = levels[BITS == 8 ? byte : byte >> column % 2 * 4 & 0x0f];
    return canonical_number(level, canonical_zero(v, r, group), canonical_factor(v, r, group), v.canonical.dtype);
}

/* The levels of four neighbouring codes, from the lowest bits on. */
template <int BITS> static __device__ __forceinline__ float4 levels_of(uint32_t codes, const float *levels)
{
    constexpr uint32_t MASK = (1u << BITS) - 1;
    return make_float4(levels[codes & MASK], levels[codes >> BITS & MASK], levels[codes >> 2 * BITS & MASK],
                       levels[codes >> 3 * BITS & MASK]);
}

/* Four neighbouring numbers that share a scale. */
template <int BITS>
static __device__ __forceinline__ float4 canonical_run(uint32_t codes, const float *levels, float zero, float factor, apr_dtype dtype)
{
    const float4 q = levels_of<BITS>(codes, levels);
    return make_float4(canonical_number(q.x, zero, factor, dtype), canonical_number(q.y, zero, factor, dtype),
                       canonical_number(q.z, zero, factor, dtype), canonical_number(q.w, zero, factor, dtype));
}

/* Four neighbouring numbers, each with its own group. */
template <int BITS>
static __device__ __forceinline__ float4 canonical_mixed_run(const weight_view &v, const canonical_row &r, uint32_t codes,
                                                             const float *levels, int4 groups)
{
    const float4 q = levels_of<BITS>(codes, levels);
    const apr_dtype dtype = v.canonical.dtype;
    return make_float4(canonical_number(q.x, canonical_zero(v, r, groups.x), canonical_factor(v, r, groups.x), dtype),
                       canonical_number(q.y, canonical_zero(v, r, groups.y), canonical_factor(v, r, groups.y), dtype),
                       canonical_number(q.z, canonical_zero(v, r, groups.z), canonical_factor(v, r, groups.z), dtype),
                       canonical_number(q.w, canonical_zero(v, r, groups.w), canonical_factor(v, r, groups.w), dtype));
}

/* Whether rows consist of whole runs of n columns, each with one scale or with a group for each column. */
static inline bool in_runs_of(const weight_view &v, int n)
{
    return v.n_in % n == 0 && (v.canonical.groups != NULL || v.factor_columns % n == 0 || v.factor_columns >= v.n_in);
}

#endif
