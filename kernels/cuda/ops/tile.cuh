/* tile.cuh - rows of a packed matrix as numbers: tiles for a matrix product, rows of an embedding table. */
#ifndef APR_KERNELS_CUDA_TILE_CUH
#define APR_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/ops/weights.cuh"

#include <cuda_bf16.h>

enum { TILE_THREADS = 256 };

typedef struct tile_args {
    weight_view weight;
    const int32_t *ids;    /* row i of the tile is logical row ids[i] ... */
    int64_t first, n_rows; /* ... or, without ids, first + i */
    void *out;             /* [n_rows, n_in] */
} tile_args;

static __device__ __forceinline__ void put_4(float *out, float4 v) { *(float4 *)out = v; }
static __device__ __forceinline__ void put_4(__half *out, float4 v)
{
    const __half2 a = __floats2half2_rn(v.x, v.y), b = __floats2half2_rn(v.z, v.w);
    *(uint2 *)out = make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
}
static __device__ __forceinline__ void put_4(__nv_bfloat16 *out, float4 v)
{
    const __nv_bfloat162 a = __floats2bfloat162_rn(v.x, v.y), b = __floats2bfloat162_rn(v.z, v.w);
    *(uint2 *)out = make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
}
static __device__ __forceinline__ void put_1(float *out, float v) { *out = v; }
static __device__ __forceinline__ void put_1(__half *out, float v) { *out = __float2half_rn(v); }
static __device__ __forceinline__ void put_1(__nv_bfloat16 *out, float v) { *out = __float2bfloat16_rn(v); }

/* As kernels/ref computes it: each step rounded. */
template <apr_dtype D>
static __device__ __forceinline__ float exact_value(const piece<D> &q, float code, float scale, float below, float factor)
{
    typedef piece<D> P;
    float value = P::UNIT != 1.0f ? fmaf(code, P::UNIT, -P::UNIT * P::BIAS) : code; /* exact */
    value = __fmul_rn(value, scale);
    if (P::HAS_MIN) value = __fsub_rn(value, below);
    return has_factors<D>::value ? __fmul_rn(value, factor) : value;
}

static __device__ __forceinline__ int64_t tile_row(const tile_args &a, int64_t i)
{
    return stored_row(a.weight, a.ids != NULL ? (int64_t)a.ids[i] : a.first + i);
}

/* A thread a piece. */
template <apr_dtype D, typename OUT> __global__ void __launch_bounds__(TILE_THREADS, 2) k_tile(const __grid_constant__ tile_args a)
{
    typedef piece<D> P;
    const int64_t pieces_a_row = a.weight.n_in / P::ELEMS * P::LANES, at = (int64_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (at >= a.n_rows * pieces_a_row) return;
    const int64_t i = at / pieces_a_row, p = at % pieces_a_row, block = p / P::LANES, stored = tile_row(a, i);
    const int lane = (int)(p % P::LANES);
    OUT *const out = (OUT *)a.out + i * a.weight.n_in + block * P::ELEMS;
    const float factor = has_factors<D>::value ? factor_at(a.weight, stored, block * P::ELEMS) : 1.0f;
    P q;
    q.load(a.weight.data + stored * a.weight.row_bytes + block * P::BYTES, lane);
#pragma unroll
    for (int run = 0; run < P::RUNS; run++) {
        const int group = run / (P::RUNS / P::SCALES);
        const float scale = __fmul_rn(q.common(), q.scale(group));
        const float below = P::HAS_MIN ? __fmul_rn(q.common_min(), q.min(group)) : 0.0f;
        float4 v = q.codes(run);
        v.x = exact_value<D>(q, v.x, scale, below, factor);
        v.y = exact_value<D>(q, v.y, scale, below, factor);
        v.z = exact_value<D>(q, v.z, scale, below, factor);
        v.w = exact_value<D>(q, v.w, scale, below, factor);
        put_4(out + P::column(lane, run), v);
    }
}

/* A thread an element, for rows of any length. */
template <apr_dtype D, typename OUT> __global__ void __launch_bounds__(TILE_THREADS, 2) k_tile_elements(const __grid_constant__ tile_args a)
{
    const int64_t at = (int64_t)blockIdx.x * TILE_THREADS + threadIdx.x;
    if (at >= a.n_rows * a.weight.n_in) return;
    const int64_t i = at / a.weight.n_in, column = at % a.weight.n_in, stored = tile_row(a, i);
    const float value = element<D>(a.weight, stored, column);
    put_1((OUT *)a.out + at, has_factors<D>::value ? __fmul_rn(value, factor_at(a.weight, stored, column)) : value);
}

static inline unsigned tile_blocks(int64_t n_threads) { return (unsigned)((n_threads + TILE_THREADS - 1) / TILE_THREADS); }

template <apr_dtype D, typename OUT> cudaError_t tile_as(const tile_args &a, cudaStream_t stream)
{
    k_tile<D, OUT><<<tile_blocks(a.n_rows * (a.weight.n_in / piece<D>::ELEMS) * piece<D>::LANES), TILE_THREADS, 0, stream>>>(a);
    return cudaGetLastError();
}

template <apr_dtype D, typename OUT> cudaError_t tile_elements_as(const tile_args &a, cudaStream_t stream)
{
    k_tile_elements<D, OUT><<<tile_blocks(a.n_rows * a.weight.n_in), TILE_THREADS, 0, stream>>>(a);
    return cudaGetLastError();
}

template <apr_dtype D> cudaError_t tile_of(const tile_args &a, apr_dtype to, cudaStream_t stream)
{
    if (to == APR_F16) return tile_as<D, __half>(a, stream);
    if (to == APR_BF16) return tile_as<D, __nv_bfloat16>(a, stream);
    return tile_as<D, float>(a, stream);
}

template <apr_dtype D> cudaError_t tile_of_plain(const tile_args &a, apr_dtype to, cudaStream_t stream)
{
    if (in_pieces<D>(a.weight)) return tile_of<D>(a, to, stream);
    if (to == APR_F16) return tile_elements_as<D, __half>(a, stream);
    if (to == APR_BF16) return tile_elements_as<D, __nv_bfloat16>(a, stream);
    return tile_elements_as<D, float>(a, stream);
}

/* Packed matrices in their regular form. */
cudaError_t tile_of_relaid(const tile_args &args, apr_dtype to, cudaStream_t stream);

/* cudaErrorNotSupported: no kernel for that type. */
cudaError_t apr_cuda_tile(const tile_args &args, apr_dtype from, apr_dtype to, cudaStream_t stream);

#endif
