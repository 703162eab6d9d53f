/* dequantize.cuh - dequantizes rows of a matrix: FP16 tiles for cuBLAS, rows of an embedding table.
 *
 * Memory bandwidth limits these kernels as long as they do little else. So a thread starts the loads of a few pieces together, writes 16
 * bytes at a time, and finds rows and factors without division. Values are those of kernels/ref, bit for bit. */
#ifndef APR_KERNELS_CUDA_DEQUANTIZE_CUH
#define APR_KERNELS_CUDA_DEQUANTIZE_CUH

#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"

#include <cuda_bf16.h>

enum { DEQUANTIZE_THREADS = 256 };

typedef struct dequantize_args {
    weight_view weight;
    const int32_t *ids;    /* row i of the tile is logical row ids[i], or row 0 where that is past the last row ... */
    int64_t first, n_rows; /* ... or, without ids, first + i */
    void *out;             /* [n_rows, n_in] */
} dequantize_args;

/* n / d for n below 2^31, exactly: n * (2^shift / d rounded up) / 2^shift. */
typedef struct divisor {
    uint32_t multiplier, d;
    int shift;
} divisor;

static inline divisor divisor_of(int64_t d)
{
    int bits = 0;
    if (d > INT32_MAX) d = INT32_MAX; /* also for n * 0 */
    while ((int64_t)1 << bits < d) bits++;
    return divisor{(uint32_t)(((uint64_t)1 << (31 + bits)) / (uint64_t)d + 1), (uint32_t)d, 31 + bits};
}

static __device__ __forceinline__ uint32_t over(const divisor &d, uint32_t n) { return (uint32_t)((uint64_t)n * d.multiplier >> d.shift); }

/* The arguments of a launch. A part is what a thread takes at a time: a piece, a run of codes, or a single number. */
typedef struct dequantize_launch {
    dequantize_args a;
    uint32_t n_parts; /* n_rows * parts of a row */
    /* Rows are stored consecutively from `data` on in the order of the tile, with at most one factor: the row number is not needed. */
    bool in_order;
    const uint8_t *data;
    divisor parts;      /* of a row */
    divisor matrix;     /* rows of a matrix in a stack */
    divisor down, wide; /* rows and columns that share a factor */
} dequantize_launch;

/* Four numbers in 16 bits each, of the pointer's type. */
static __device__ __forceinline__ uint2 packed(const __half *, float4 v)
{
    const __half2 a = __floats2half2_rn(v.x, v.y), b = __floats2half2_rn(v.z, v.w);
    return make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
}
static __device__ __forceinline__ uint2 packed(const __nv_bfloat16 *, float4 v)
{
    const __nv_bfloat162 a = __floats2bfloat162_rn(v.x, v.y), b = __floats2bfloat162_rn(v.z, v.w);
    return make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
}

static __device__ __forceinline__ void put_4(float *out, float4 v) { *(float4 *)out = v; }
template <typename OUT> static __device__ __forceinline__ void put_4(OUT *out, float4 v) { *(uint2 *)out = packed(out, v); }
static __device__ __forceinline__ void put_8(float *out, float4 a, float4 b) { put_4(out, a), put_4(out + 4, b); }
template <typename OUT> static __device__ __forceinline__ void put_8(OUT *out, float4 a, float4 b)
{
    const uint2 low = packed(out, a), high = packed(out, b);
    /* explicit, since the compiler made four 4-byte stores of some of these */
    ptx_store_16(out, low, high);
}
static __device__ __forceinline__ void put_1(float *out, float v) { *out = v; }
static __device__ __forceinline__ void put_1(__half *out, float v) { *out = __float2half_rn(v); }
static __device__ __forceinline__ void put_1(__nv_bfloat16 *out, float v) { *out = __float2bfloat16_rn(v); }

/* Computed as in kernels/ref, with each step rounded. For types that have a minimum, a code times its scale is exact (at most 11 bits of an
 * FP16 number, 6 of a scale and 5 of a code), so one rounding is enough there. */
template <apr_dtype D>
static __device__ __forceinline__ float exact_value(const piece<D> &q, float code, float scale, float below, float factor)
{
    typedef piece<D> P;
    float value = P::UNIT != 1.0f ? fmaf(code, P::UNIT, -P::UNIT * P::BIAS) : code; /* exact */
    value = P::HAS_MIN ? fmaf(value, scale, -below) : __fmul_rn(value, scale);
    return has_factors<D>::value ? __fmul_rn(value, factor) : value;
}

template <apr_dtype D>
static __device__ __forceinline__ float4 exact_run(const piece<D> &q, int run, float scale, float below, float factor)
{
    const float4 v = q.codes(run);
    return make_float4(exact_value<D>(q, v.x, scale, below, factor), exact_value<D>(q, v.y, scale, below, factor),
                       exact_value<D>(q, v.z, scale, below, factor), exact_value<D>(q, v.w, scale, below, factor));
}

static __device__ __forceinline__ uint32_t dequantized_row(const dequantize_args &a, uint32_t i)
{
    return (uint32_t)stored_row(a.weight, a.ids == NULL ? a.first + i : a.ids[i] < a.weight.n_rows ? (int64_t)a.ids[i] : 0);
}

/* The same as factors_of_row. */
static __device__ __forceinline__ int64_t dequantized_factors_of(const dequantize_launch &l, uint32_t stored)
{
    const weight_view &v = l.a.weight;
    const uint32_t matrix = over(l.matrix, stored);
    return (int64_t)(matrix * (uint32_t)v.factors_high + over(l.down, stored - matrix * l.matrix.d)) * v.factors_wide;
}

/* The same as factor_at. */
static __device__ __forceinline__ float dequantized_factor(const dequantize_launch &l, uint32_t stored, uint32_t column)
{
    const weight_view &v = l.a.weight;
    if (v.factors == NULL) return 1.0f;
    return factor_number(v, v.one_factor ? 0 : dequantized_factors_of(l, stored) + over(l.wide, column));
}

/* A piece, its source and its destination. */
template <apr_dtype D, typename OUT> struct dequantize_part {
    typedef piece<D> P;
    P q;
    float factor;
    OUT *out;
    int lane;
    const uint8_t *head; /* see load */

    /* The block that has the part. Blocks are consecutive in the output, and mostly in the source. Layouts where the source is not are not
     * `in_order`, and their addresses are computed here. */
    __device__ __forceinline__ const uint8_t *find(const dequantize_launch &l, uint32_t at)
    {
        const weight_view &v = l.a.weight;
        lane = (int)(at % P::LANES);
        out = (OUT *)l.a.out + (int64_t)(at / P::LANES) * P::ELEMS;
        if (l.in_order) {
            factor = has_factors<D>::value && v.factors != NULL ? factor_number(v, 0) : 1.0f;
            return l.data + (int64_t)(at / P::LANES) * P::BYTES;
        }
        const uint32_t i = over(l.parts, at), block = at / P::LANES - i * (l.parts.d / P::LANES), stored = dequantized_row(l.a, i);
        factor = has_factors<D>::value ? dequantized_factor(l, stored, block * P::ELEMS) : 1.0f;
        const uint8_t *const row = row_at<D>(v, stored);
        if constexpr (has_split_heads(D)) head = row + head_at<D>((int)block);
        return row + block_at<D>(v, (int)block);
    }
    template <bool SPLIT> __device__ __forceinline__ void load(const uint8_t *from)
    {
        if constexpr (SPLIT) q.load_split(head, from, lane);
        else q.load(from, lane);
    }

    /* Two consecutive runs are neighbours: 8 columns. */
    __device__ __forceinline__ void store() const
    {
        constexpr int A_TIME = P::RUNS > 1 ? 2 : 1;
#pragma unroll
        for (int run = 0; run < P::RUNS; run += A_TIME) {
            const int group = run / (P::RUNS / P::SCALES);
            const float scale = __fmul_rn(q.block_scale(), q.scale(group));
            const float below = P::HAS_MIN ? __fmul_rn(q.block_min(), q.min(group)) : 0.0f;
            const float4 a = exact_run<D>(q, run, scale, below, factor);
            if constexpr (A_TIME == 1) put_4(out + P::column(lane, run), a);
            else put_8(out + P::column(lane, run), a, exact_run<D>(q, run + 1, scale, below, factor));
        }
    }
};

/* Pieces of a thread: together at least 32 columns. */
template <apr_dtype D> struct dequantize_pieces {
    static constexpr int COLUMNS = piece<D>::ELEMS / piece<D>::LANES, N = COLUMNS < 32 ? 32 / COLUMNS : 1;
};

/* There is no branch between the loads of a thread, so that all are in flight at once. SPLIT: exponents are separated from codes
 * (weights.cuh). */
template <apr_dtype D, typename OUT, bool SPLIT>
__global__ void __launch_bounds__(DEQUANTIZE_THREADS, 3) k_dequantize(const __grid_constant__ dequantize_launch l)
{
    constexpr int N = dequantize_pieces<D>::N;
    const uint32_t first = blockIdx.x * (DEQUANTIZE_THREADS * N) + threadIdx.x;
    const uint8_t *from[N];
    dequantize_part<D, OUT> part[N];

    if ((blockIdx.x + 1) * (DEQUANTIZE_THREADS * N) > l.n_parts) { /* some threads have fewer parts */
#pragma unroll 1
        for (uint32_t at = first; at < l.n_parts; at += DEQUANTIZE_THREADS) {
            from[0] = part[0].find(l, at);
            part[0].template load<SPLIT>(from[0]);
            part[0].store();
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) from[j] = part[j].find(l, first + j * DEQUANTIZE_THREADS);
#pragma unroll
    for (int j = 0; j < N; j++) part[j].template load<SPLIT>(from[j]);
#pragma unroll
    for (int j = 0; j < N; j++) part[j].store();
}

/* A thread per element, for rows of any length. */
template <apr_dtype D, typename OUT>
__global__ void __launch_bounds__(DEQUANTIZE_THREADS, 2) k_dequantize_elements(const __grid_constant__ dequantize_launch l)
{
    const uint32_t at = blockIdx.x * DEQUANTIZE_THREADS + threadIdx.x;
    if (at >= l.n_parts) return;
    const uint32_t i = over(l.parts, at), column = at - i * l.parts.d, stored = dequantized_row(l.a, i);
    const float value = element<D>(l.a.weight, stored, column);
    put_1((OUT *)l.a.out + at, has_factors<D>::value ? __fmul_rn(value, dequantized_factor(l, stored, column)) : value);
}

/* Launches the kernel for as many rows at a time as have less than 2^31 parts; a thread block takes `a_block` parts. */
static inline cudaError_t dequantize_rows_with(void (*kernel)(const dequantize_launch), const dequantize_args &a, size_t out_bytes,
                                               int64_t row_parts, int64_t a_block, cudaStream_t stream)
{
    const weight_view &v = a.weight;
    const int64_t most = INT32_MAX / row_parts;
    cudaError_t error = v.n_rows <= INT32_MAX ? cudaSuccess : cudaErrorNotSupported;
    dequantize_launch l = {
        a, 0, false, NULL, divisor_of(row_parts), divisor_of(v.matrix_rows), divisor_of(v.factor_rows), divisor_of(v.factor_columns)};

    l.in_order = a.ids == NULL && v.step == APR_STEP_NONE && !v.tiled && (v.factors == NULL || v.one_factor);

    for (int64_t done = 0; done < a.n_rows && error == cudaSuccess; done += most) {
        l.a.n_rows = a.n_rows - done < most ? a.n_rows - done : most;
        l.a.first = a.first + done;
        l.data = v.data + l.a.first * v.row_bytes;
        if (a.ids != NULL) l.a.ids = a.ids + done;
        l.a.out = (uint8_t *)a.out + (size_t)(done * v.n_in) * out_bytes;
        l.n_parts = (uint32_t)(l.a.n_rows * row_parts);
        kernel<<<blocks_of(l.n_parts, a_block), DEQUANTIZE_THREADS, 0, stream>>>(l);
        error = cudaGetLastError();
    }
    return error;
}

template <apr_dtype D, typename OUT> cudaError_t dequantize_as(const dequantize_args &a, cudaStream_t stream)
{
    void (*kernel)(const dequantize_launch) = k_dequantize<D, OUT, false>;
    if constexpr (has_split_heads(D))
        if (a.weight.tiled) kernel = k_dequantize<D, OUT, true>;
    return dequantize_rows_with(kernel, a, sizeof(OUT), a.weight.n_in / piece<D>::ELEMS * piece<D>::LANES,
                                DEQUANTIZE_THREADS * dequantize_pieces<D>::N, stream);
}

template <apr_dtype D, typename OUT> cudaError_t dequantize_elements_as(const dequantize_args &a, cudaStream_t stream)
{
    return dequantize_rows_with(k_dequantize_elements<D, OUT>, a, sizeof(OUT), a.weight.n_in, DEQUANTIZE_THREADS, stream);
}

template <apr_dtype D> cudaError_t dequantize_of(const dequantize_args &a, apr_dtype to, cudaStream_t stream)
{
    if (to == APR_F16) return dequantize_as<D, __half>(a, stream);
    if (to == APR_BF16) return dequantize_as<D, __nv_bfloat16>(a, stream);
    return dequantize_as<D, float>(a, stream);
}

template <apr_dtype D> cudaError_t dequantize_of_plain(const dequantize_args &a, apr_dtype to, cudaStream_t stream)
{
    if (in_pieces<D>(a.weight)) return dequantize_of<D>(a, to, stream);
    if (to == APR_F16) return dequantize_elements_as<D, __half>(a, stream);
    if (to == APR_BF16) return dequantize_elements_as<D, __nv_bfloat16>(a, stream);
    return dequantize_elements_as<D, float>(a, stream);
}

/* Packed matrices in the canonical layout. */
cudaError_t dequantize_of_canonical(const dequantize_args &args, apr_dtype to, cudaStream_t stream);

/* Dequantizes rows. cudaErrorNotSupported: no kernel for the type. */
cudaError_t apr_cuda_dequantize(const dequantize_args &args, apr_dtype from, apr_dtype to, cudaStream_t stream);

#endif
