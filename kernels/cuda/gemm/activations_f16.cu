/* activations_f16.cu - row-scaled FP16 activations (activations_f16.cuh). One thread block per row; a thread takes 8 numbers at a time if rows consist of
 * such chunks. */
#include "kernels/cuda/common/norm.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/gemm/activations_f16.cuh"
#include "kernels/cuda/prompt_args.h"

enum {
    ROW_THREADS = 512, /* of a row that is kept in registers */
    THREADS = 256,
    CHUNK = 8,
    NARROW = 512,      /* largest row of a warp */
    TOP_EXPONENT = 13, /* the largest number is in [2^13, 2^14) */
    SPREAD = 10,       /* maximum difference of the exponents of the rows' largest numbers, if they share a scale */
};

/* The largest of a thread block's values, returned in every thread. */
template <int N_THREADS> static __device__ __forceinline__ float block_largest(float max_abs)
{
    __shared__ float parts[N_THREADS / 32];
    return block_max<N_THREADS>(max_abs, parts);
}

static __device__ __forceinline__ int biased_exponent(float magnitude) { return (int)(__float_as_uint(magnitude) >> 23); }
static __device__ __forceinline__ bool is_usual(float magnitude)
{
    return biased_exponent(magnitude) > 20 && biased_exponent(magnitude) < 240;
}

/* The exponent of a row's scale from its largest number; 0 for zeros, subnormals and infinities, which stay unscaled. */
static __device__ __forceinline__ int exponent_for(float max_abs)
{
    return is_usual(max_abs) ? biased_exponent(max_abs) - 127 - TOP_EXPONENT : 0;
}
static __device__ __forceinline__ float power_of_two(int exponent) { return __uint_as_float((uint32_t)(127 + exponent) << 23); }

static __device__ __forceinline__ float max_abs_of(float4 v) { return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))); }

/* Scales two numbers and rounds them to FP16; a and b become the rounding errors. */
static __device__ __forceinline__ uint32_t round_2(float &a, float &b, float inverse)
{
    const float x = a * inverse, y = b * inverse;
    const __half2 values = __floats2half2_rn(x, y);
    a = x - __low2float(values);
    b = y - __high2float(values);
    return *(const uint32_t *)&values;
}

static __device__ __forceinline__ uint32_t pack_2(float a, float b)
{
    const __half2 values = __floats2half2_rn(a, b);
    return *(const uint32_t *)&values;
}

static __device__ __forceinline__ void put_chunk(__half *values, __half *remainders, int64_t at, float4 a, float4 b, float inverse)
{
    uint4 words;
    words.x = round_2(a.x, a.y, inverse);
    words.y = round_2(a.z, a.w, inverse);
    words.z = round_2(b.x, b.y, inverse);
    words.w = round_2(b.z, b.w, inverse);
    *(uint4 *)(values + at) = words;
    if (remainders != NULL)
        *(uint4 *)(remainders + at) = make_uint4(pack_2(a.x, a.y), pack_2(a.z, a.w), pack_2(b.x, b.y), pack_2(b.z, b.w));
}

static __device__ __forceinline__ int64_t row_stride(int64_t stride, int64_t width) { return stride > 0 ? stride : width; }

/* A power of two per row, which is read once: up to N chunks of a thread stay in registers. */
template <int N> static __global__ void __launch_bounds__(ROW_THREADS) k_to_f16(const float *x, apr_cuda_activations_f16 to, int64_t n_in)
{
    const int64_t row = blockIdx.x * n_in, from = blockIdx.x * row_stride(to.x_stride, n_in), first = threadIdx.x * CHUNK;
    float4 v[N][2];
    float max_abs = 0.0f;

#pragma unroll
    for (int c = 0; c < N; c++) {
        const int64_t i = first + c * ROW_THREADS * CHUNK;
        v[c][0] = v[c][1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (i >= n_in) continue;
        v[c][0] = *(const float4 *)(x + from + i);
        v[c][1] = *(const float4 *)(x + from + i + 4);
    }
#pragma unroll
    for (int c = 0; c < N; c++) max_abs = fmaxf(max_abs, fmaxf(max_abs_of(v[c][0]), max_abs_of(v[c][1])));
    const int exponent = exponent_for(block_largest<ROW_THREADS>(max_abs));
    if (threadIdx.x == 0) to.scales[blockIdx.x] = power_of_two(exponent);
#pragma unroll
    for (int c = 0; c < N; c++) {
        const int64_t i = first + c * ROW_THREADS * CHUNK;
        if (i < n_in) put_chunk(to.values, to.remainders, row + i, v[c][0], v[c][1], power_of_two(-exponent));
    }
}

/* The same for rows of up to NARROW numbers, a warp per row. */
static __global__ void __launch_bounds__(THREADS) k_to_f16_narrow(const float *x, apr_cuda_activations_f16 to, int64_t n_rows, int64_t n_in)
{
    enum { N = NARROW / (32 * CHUNK) };
    const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, from = row * row_stride(to.x_stride, n_in);
    const int first = (int)threadIdx.x % 32 * CHUNK;
    float4 v[N][2];
    float max_abs = 0.0f;

    if (row >= n_rows) return;
#pragma unroll
    for (int c = 0; c < N; c++) {
        const int i = first + c * 32 * CHUNK;
        v[c][0] = i < n_in ? *(const float4 *)(x + from + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        v[c][1] = i < n_in ? *(const float4 *)(x + from + i + 4) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        max_abs = fmaxf(max_abs, fmaxf(max_abs_of(v[c][0]), max_abs_of(v[c][1])));
    }
    const int exponent = exponent_for(warp_max(max_abs));
    if (threadIdx.x % 32 == 0) to.scales[row] = power_of_two(exponent);
#pragma unroll
    for (int c = 0; c < N; c++) {
        const int i = first + c * 32 * CHUNK;
        if (i < n_in) put_chunk(to.values, to.remainders, row * n_in + i, v[c][0], v[c][1], power_of_two(-exponent));
    }
}

/* The same for rows of any length. */
static __global__ void __launch_bounds__(THREADS) k_to_f16_any(const float *inputs, apr_cuda_activations_f16 to, int64_t n_in)
{
    const int64_t row = blockIdx.x * n_in;
    const float *const x = inputs + (blockIdx.x * row_stride(to.x_stride, n_in) - row);
    float max_abs = 0.0f;

    for (int64_t i = threadIdx.x; i < n_in; i += THREADS) max_abs = fmaxf(max_abs, fabsf(x[row + i]));
    const int exponent = exponent_for(block_largest<THREADS>(max_abs));
    if (threadIdx.x == 0) to.scales[blockIdx.x] = power_of_two(exponent);
    for (int64_t i = threadIdx.x; i < n_in; i += THREADS) {
        const float scaled = x[row + i] * power_of_two(-exponent);
        const __half half = __float2half_rn(scaled);
        to.values[row + i] = half;
        if (to.remainders != NULL) to.remainders[row + i] = __float2half_rn(scaled - __half2float(half));
    }
}

static __global__ void __launch_bounds__(THREADS) k_largest(const float *x, float *largest, int64_t n_in)
{
    const float *const row = x + blockIdx.x * n_in;
    float max_abs = 0.0f;
    for (int64_t i = threadIdx.x * 4; i < n_in; i += THREADS * 4) max_abs = fmaxf(max_abs, max_abs_of(*(const float4 *)(row + i)));
    max_abs = block_largest<THREADS>(max_abs);
    if (threadIdx.x == 0) largest[blockIdx.x] = max_abs;
}

/* The exponent that all rows share, or this row's own: all blocks decide the same. Rows of zeros fit any exponent. */
static __device__ int shared_exponent(const float *largest, int64_t n_rows, bool *is_shared)
{
    float max_abs = 0.0f, least_inverse = 0.0f; /* the smallest number is found as the largest inverse */
    for (int64_t i = threadIdx.x; i < n_rows; i += THREADS) {
        const float of_row = __ldg(largest + i);
        max_abs = fmaxf(max_abs, of_row);
        if (of_row > 0.0f) least_inverse = fmaxf(least_inverse, __uint_as_float(0x7f800000u - (__float_as_uint(of_row) & 0x7f800000u)));
    }
    max_abs = block_largest<THREADS>(max_abs);
    __syncthreads();
    least_inverse = block_largest<THREADS>(least_inverse);
    const int least = 255 - biased_exponent(least_inverse); /* biased exponent of the smallest row */
    *is_shared = is_usual(max_abs) && least > 20 && biased_exponent(max_abs) - least <= SPREAD;
    return exponent_for(*is_shared ? max_abs : __ldg(largest + blockIdx.x));
}

/* Stores the scale of the block's row, and, by one block, the shared factors. */
static __device__ __forceinline__ void store_scales(const apr_cuda_activations_f16 &to, int exponent, bool is_shared)
{
    if (threadIdx.x == 0) to.scales[blockIdx.x] = is_shared ? 1.0f : power_of_two(exponent);
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        to.factors[0] = is_shared ? power_of_two(exponent) : 1.0f;
        to.factors[1] = 0.0f;
        to.factors[2] = is_shared ? 1.0f : 0.0f;
    }
}

static __global__ void __launch_bounds__(THREADS) k_to_f16_shared(const float *x, apr_cuda_activations_f16 to, int64_t n_rows, int64_t n_in)
{
    const int64_t row = blockIdx.x * n_in;
    bool is_shared;
    const int exponent = shared_exponent(to.largest, n_rows, &is_shared);

    store_scales(to, exponent, is_shared);
    for (int64_t i = threadIdx.x * CHUNK; i < n_in; i += THREADS * CHUNK)
        put_chunk(to.values, NULL, row + i, *(const float4 *)(x + row + i), *(const float4 *)(x + row + i + 4), power_of_two(-exponent));
}

/* Rounded separately, as apr_cuda_finish does: not fused with the following addition. */
static __device__ __forceinline__ float times(float x, float by) { return __fmul_rn(x, by); }

/* --- GLU --- */

typedef struct gated_rows {
    apr_glu_shape shape;
    const void *gate, *up; /* up NULL: the activation only */
    const float *scales;   /* [n_rows] factors that both still need; NULL: none */
    float by[2];           /* FP16 only: factors of gate and up before that */
    float *out;            /* may be gate or up, since a thread reads before it writes. NULL: FP16 only */
} gated_rows;

/* Four FP16 numbers. */
typedef struct half4 {
    uint2 words;
} half4;

static __device__ __forceinline__ float4 float4_of(float4 v, float) { return v; }
static __device__ __forceinline__ float4 float4_of(half4 v, float by)
{
    const float2 a = __half22float2(*(const __half2 *)&v.words.x), b = __half22float2(*(const __half2 *)&v.words.y);
    return make_float4(times(a.x, by), times(a.y, by), times(b.x, by), times(b.y, by));
}

/* Not inlined: the choice of the function, in 40 places, would exceed the instruction cache. */
static __device__ __noinline__ float general_glu(const apr_glu_shape &shape, bool is_gated, float gate, float up)
{
    return is_gated ? apr_glu_of(&shape, gate, up) : apr_activate(shape.activation, gate);
}

/* IS_PLAIN: SwiGLU without limits, the usual case. */
template <bool IS_PLAIN> static __device__ __forceinline__ float glu_of(const gated_rows &rows, float gate, float up, float by)
{
    const float g = times(gate, by), u = times(up, by);
    return IS_PLAIN ? apr_activate(APR_ACT_SILU, g) * (u + rows.shape.up_offset) : general_glu(rows.shape, rows.up != NULL, g, u);
}

template <bool IS_PLAIN, typename FOUR>
static __device__ __forceinline__ float4 glu_of_4(const gated_rows &rows, FOUR gate, FOUR up, float by)
{
    const float4 g = float4_of(gate, rows.by[0]), u = float4_of(up, rows.by[1]);
    return make_float4(glu_of<IS_PLAIN>(rows, g.x, u.x, by), glu_of<IS_PLAIN>(rows, g.y, u.y, by), glu_of<IS_PLAIN>(rows, g.z, u.z, by),
                       glu_of<IS_PLAIN>(rows, g.w, u.w, by));
}

/* A row per thread block, read once. Loads are issued some iterations ahead, to hide memory latency. The row stays in shared memory until
 * its largest number is known (FITS), which leaves registers for two blocks, one of which reads while the other writes. Otherwise it is
 * read and computed a second time. */
template <bool IS_PLAIN, bool FITS, typename FOUR>
static __global__ void __launch_bounds__(ROW_THREADS, 2)
    k_glu_f16(const __grid_constant__ gated_rows rows, apr_cuda_activations_f16 to, int64_t n_in)
{
    constexpr int AHEAD = IS_PLAIN ? 64 / (int)sizeof(FOUR) : 1; /* with more, registers spill */
    extern __shared__ float4 kept[];
    const int64_t row = blockIdx.x * n_in;
    const FOUR *const gate = (const FOUR *)rows.gate + row / 4, *const up = rows.up != NULL ? (const FOUR *)rows.up + row / 4 : gate;
    float4 *const out = rows.out != NULL ? (float4 *)(rows.out + row) : NULL;
    const int n = (int)(n_in / 4);
    const float by = rows.scales != NULL ? rows.scales[blockIdx.x] : 1.0f;
    FOUR g[AHEAD], u[AHEAD];
    float max_abs = 0.0f;

#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        const int i = threadIdx.x + k * ROW_THREADS;
        if (i < n) g[k] = gate[i], u[k] = up[i];
    }
    for (int base = threadIdx.x; base < n; base += AHEAD * ROW_THREADS) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int i = base + k * ROW_THREADS, later = i + AHEAD * ROW_THREADS;
            const FOUR own_gate = g[k], own_up = u[k];
            if (later < n) g[k] = gate[later], u[k] = up[later];
            if (i >= n) continue;
            const float4 v = glu_of_4<IS_PLAIN>(rows, own_gate, own_up, by);
            if (out != NULL) out[i] = v;
            if (FITS) kept[i] = v;
            max_abs = fmaxf(max_abs, max_abs_of(v));
        }
    }
    const int exponent = exponent_for(block_largest<ROW_THREADS>(max_abs));
    if (threadIdx.x == 0) to.scales[blockIdx.x] = power_of_two(exponent);
    const float inverse = power_of_two(-exponent);
    for (int i = threadIdx.x; i < n; i += ROW_THREADS) {
        float4 v = FITS ? kept[i] : out != NULL ? out[i] : glu_of_4<IS_PLAIN>(rows, gate[i], up[i], by);
        *(uint2 *)(to.values + row + 4 * i) = make_uint2(round_2(v.x, v.y, inverse), round_2(v.z, v.w, inverse));
        if (to.remainders != NULL) *(uint2 *)(to.remainders + row + 4 * i) = make_uint2(pack_2(v.x, v.y), pack_2(v.z, v.w));
    }
}

static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* --- rows of weights --- */

static __device__ __forceinline__ float magnitudes_of(uint32_t values)
{
    const float2 v = __half22float2(*(const __half2 *)&values);
    return fabsf(v.x) + fabsf(v.y);
}

static __global__ void __launch_bounds__(THREADS) k_row_sums(const __half *rows, int64_t n_in, bool in_chunks, float *max_sum)
{
    __shared__ float parts[THREADS / 32];
    const __half *const row = rows + blockIdx.x * n_in;
    float sum = 0.0f;

    for (int64_t i = threadIdx.x; !in_chunks && i < n_in; i += THREADS) sum += fabsf(__half2float(row[i]));
    for (int64_t i = threadIdx.x; in_chunks && i < n_in / CHUNK; i += THREADS) {
        const uint4 words = ((const uint4 *)row)[i];
        sum += (magnitudes_of(words.x) + magnitudes_of(words.y)) + (magnitudes_of(words.z) + magnitudes_of(words.w));
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < THREADS / 32; i++) sum += parts[i];
    atomicMax((unsigned *)max_sum, __float_as_uint(sum)); /* float bits of this sign have the order of values, NaN last */
}

cudaError_t apr_cuda_find_row_sum(const __half *rows, int64_t n_rows, int64_t n_in, float *max_sum, cudaStream_t stream)
{
    k_row_sums<<<(unsigned)n_rows, THREADS, 0, stream>>>(rows, n_in, n_in % CHUNK == 0 && is_aligned(rows), max_sum);
    return cudaGetLastError();
}

/* --- sums and their norms --- */

/* The arithmetic of norm.cu. */
static __device__ __forceinline__ float normed(const apr_norm_args &norm, float x, float scale, int i)
{
    const float y = x * scale;
    return norm.weight != NULL ? y * (norm.weight[i] + norm.offset) : y;
}

/* Sums a row by the threads that share it: up to N numbers each, all loaded before any is used. */
template <int N>
static __device__ __forceinline__ void sum_row(const apr_cuda_sum &rows, int64_t row, int width, int lane, int n_lanes, float v[N])
{
    const float by = rows.scales != NULL ? rows.scales[row] : 1.0f;
    const int64_t begin = row * width;
    float addend[N];

#pragma unroll
    for (int c = 0; c < N; c++) {
        const int i = lane + c * n_lanes;
        v[c] = i < width ? rows.x[begin + i] : 0.0f;
        addend[c] = i < width && rows.addend != NULL ? rows.addend[begin + i] : 0.0f;
    }
    if (rows.addend == NULL) return;
#pragma unroll
    for (int c = 0; c < N; c++) {
        const int i = lane + c * n_lanes;
        if (i >= width) continue;
        v[c] += rows.bias != NULL ? fmaf(addend[c], by, rows.bias[i]) : times(addend[c], by);
        rows.sum[begin + i] = v[c];
    }
}

/* A warp or a block per row. SHARED_SCALE: writes only the norm's scale and the row's largest number, for k_norm_shared. */
template <bool IS_WARP, int N, bool SHARED_SCALE>
static __global__ void __launch_bounds__(NORM_BLOCK, N < 20 ? 3 : 1)
    k_sum(const __grid_constant__ apr_cuda_sum rows, const __grid_constant__ apr_norm_args norm, apr_cuda_activations_f16 to)
{
    constexpr int N_LANES = IS_WARP ? 32 : NORM_BLOCK;
    __shared__ float parts[NORM_WARPS];
    const int64_t row = IS_WARP ? (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / 32 : blockIdx.x;
    const int lane = threadIdx.x % N_LANES, width = (int)norm.width;
    float v[N], sum = 0.0f, max_abs = 0.0f;

    if (row >= norm.n_tokens) return;
    sum_row<N>(rows, row, width, lane, N_LANES, v);
#pragma unroll
    for (int c = 0; c < N; c++)
        if (lane + c * N_LANES < width) sum = fmaf(v[c], v[c], sum);
    const float scale = norm_scale(norm, norm_sum<IS_WARP>(sum, parts));
#pragma unroll
    for (int c = 0; c < N; c++) {
        if (lane + c * N_LANES < width) v[c] = normed(norm, v[c], scale, lane + c * N_LANES);
        max_abs = fmaxf(max_abs, fabsf(v[c]));
    }
    max_abs = IS_WARP ? warp_max(max_abs) : block_largest<NORM_BLOCK>(max_abs);
    if (SHARED_SCALE) {
        if (lane == 0) to.largest[row] = max_abs;
        if (lane == 0) to.scales[row] = scale;
        return;
    }
    const int exponent = exponent_for(max_abs);
    if (lane == 0) to.scales[row] = power_of_two(exponent);
#pragma unroll
    for (int c = 0; c < N; c++) {
        const int i = lane + c * N_LANES;
        if (i < width) to.values[row * width + i] = __float2half_rn(v[c] * power_of_two(-exponent));
    }
}

static __device__ __forceinline__ float4 normed_4(const apr_norm_args &norm, float4 x, float scale, int i)
{
    return make_float4(normed(norm, x.x, scale, i), normed(norm, x.y, scale, i + 1), normed(norm, x.z, scale, i + 2),
                       normed(norm, x.w, scale, i + 3));
}

/* Norms the sums and writes them with a power of two that all rows share, or with each row's own. */
static __global__ void __launch_bounds__(THREADS)
    k_norm_shared(const float *sum, const __grid_constant__ apr_norm_args norm, apr_cuda_activations_f16 to)
{
    const float *const x = sum + blockIdx.x * norm.width;
    const float scale = to.scales[blockIdx.x];
    bool is_shared;
    const int exponent = shared_exponent(to.largest, norm.n_tokens, &is_shared); /* no thread overwrites scales before this */

    store_scales(to, exponent, is_shared);
    for (int i = threadIdx.x * CHUNK; i < norm.width; i += THREADS * CHUNK)
        put_chunk(to.values, NULL, blockIdx.x * norm.width + i, normed_4(norm, *(const float4 *)(x + i), scale, i),
                  normed_4(norm, *(const float4 *)(x + i + 4), scale, i + 4), power_of_two(-exponent));
}

/* Whether the product has already applied the scale. */
static __device__ __forceinline__ bool is_finished(const float *factors, const float *bias)
{
    return factors != NULL && bias == NULL && factors[2] != 0.0f;
}

static __global__ void __launch_bounds__(THREADS) k_finish(float *out, apr_cuda_activations_f16 of, const float *bias, int64_t n_out)
{
    if (is_finished(of.factors, bias)) return;
    const float scale = of.scales[blockIdx.x];
    float *const row = out + blockIdx.x * row_stride(of.out_stride, n_out);
    for (int64_t r = (int64_t)blockIdx.y * THREADS + threadIdx.x; r < n_out; r += (int64_t)gridDim.y * THREADS)
        row[r] = bias != NULL ? row[r] * scale + bias[r] : row[r] * scale;
}

static __global__ void __launch_bounds__(THREADS) k_finish_4(float *out, apr_cuda_activations_f16 of, const float *bias, int64_t n_out)
{
    if (is_finished(of.factors, bias)) return;
    const float scale = of.scales[blockIdx.x];
    float *const row = out + blockIdx.x * row_stride(of.out_stride, n_out);
    for (int64_t r = 4 * ((int64_t)blockIdx.y * THREADS + threadIdx.x); r < n_out; r += (int64_t)gridDim.y * THREADS * 4) {
        const float4 v = *(const float4 *)(row + r);
        float4 y = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
        if (bias != NULL) {
            const float4 b = __ldg((const float4 *)(bias + r));
            y = make_float4(fmaf(v.x, scale, b.x), fmaf(v.y, scale, b.y), fmaf(v.z, scale, b.z), fmaf(v.w, scale, b.w));
        }
        *(float4 *)(row + r) = y;
    }
}

/* Launches the kernel that keeps a row in registers. False: the rows are too long. */
static bool to_f16_rows(const float *x, const apr_cuda_activations_f16 *to, int64_t n_rows, int64_t n_in, cudaStream_t stream)
{
    static const struct {
        int n_chunks;
        void (*kernel)(const float *, apr_cuda_activations_f16, int64_t);
    } kernels[] = {{1, k_to_f16<1>}, {2, k_to_f16<2>}, {5, k_to_f16<5>}, {7, k_to_f16<7>}};
    if (n_in <= NARROW) {
        k_to_f16_narrow<<<blocks_of(n_rows, THREADS / 32), THREADS, 0, stream>>>(x, *to, n_rows, n_in);
        return true;
    }
    for (const auto &k : kernels) {
        if (n_in > (int64_t)k.n_chunks * ROW_THREADS * CHUNK) continue;
        k.kernel<<<(unsigned)n_rows, ROW_THREADS, 0, stream>>>(x, *to, n_in);
        return true;
    }
    return false;
}

static bool takes_chunks(const apr_cuda_activations_f16 *to, int64_t n_in)
{
    return n_in % CHUNK == 0 && is_aligned(to->values) && is_aligned(to->remainders);
}

cudaError_t apr_cuda_make_f16(const float *x, const apr_cuda_activations_f16 *to, int64_t n_rows, int64_t n_in, cudaStream_t stream)
{
    const bool in_chunks = takes_chunks(to, n_in) && is_aligned(x) && to->x_stride % 4 == 0;

    if (to->factors != NULL) {
        if (!in_chunks || to->x_stride > 0) return cudaErrorInvalidValue;
        k_largest<<<(unsigned)n_rows, THREADS, 0, stream>>>(x, to->largest, n_in);
        k_to_f16_shared<<<(unsigned)n_rows, THREADS, 0, stream>>>(x, *to, n_rows, n_in);
    } else if (!in_chunks || !to_f16_rows(x, to, n_rows, n_in, stream)) {
        k_to_f16_any<<<(unsigned)n_rows, THREADS, 0, stream>>>(x, *to, n_in);
    }
    return cudaGetLastError();
}

/* Whether a thread block has so much shared memory on the current device. */
static bool has_shared_memory(size_t n_bytes)
{
    int device, max_bytes = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return false;
    if (cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess) return false;
    return n_bytes + 1024 <= (size_t)max_bytes;
}

template <bool IS_PLAIN, typename FOUR>
static cudaError_t start_glu_f16(const gated_rows &rows, const apr_cuda_activations_f16 *to, int64_t n_rows, int64_t n_in,
                                 cudaStream_t stream)
{
    const size_t n_bytes = (size_t)n_in * sizeof(float);
    if (!has_shared_memory(n_bytes)) {
        k_glu_f16<IS_PLAIN, false, FOUR><<<(unsigned)n_rows, ROW_THREADS, 0, stream>>>(rows, *to, n_in);
        return cudaGetLastError();
    }
    const cudaError_t error =
        cudaFuncSetAttribute(k_glu_f16<IS_PLAIN, true, FOUR>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
    if (error != cudaSuccess) return error;
    k_glu_f16<IS_PLAIN, true, FOUR><<<(unsigned)n_rows, ROW_THREADS, n_bytes, stream>>>(rows, *to, n_in);
    return cudaGetLastError();
}

cudaError_t apr_cuda_glu_f16(const apr_glu_args *a, const apr_cuda_gated *gated, const apr_cuda_activations_f16 *to, cudaStream_t stream)
{
    const bool in_chunks = takes_chunks(to, a->width) && is_aligned(a->gate) && is_aligned(a->up) && is_aligned(a->out);
    const bool is_plain = a->up != NULL && a->shape.activation == APR_ACT_SILU && a->shape.limit <= 0.0f && a->shape.alpha <= 0.0f;
    const bool is_f16 = gated != NULL && gated->is_f16;
    gated_rows rows = {a->shape, a->gate, a->up, gated != NULL ? gated->scales : NULL, {1.0f, 1.0f}, a->out};
    if (!in_chunks || !apr_prompt_has_glu(a->width)) return cudaErrorNotSupported;
    if (!is_f16) return (is_plain ? start_glu_f16<true, float4> : start_glu_f16<false, float4>)(rows, to, a->n_tokens, a->width, stream);
    rows.by[0] = gated->by[0], rows.by[1] = gated->by[1];
    return (is_plain ? start_glu_f16<true, half4> : start_glu_f16<false, half4>)(rows, to, a->n_tokens, a->width, stream);
}

template <bool IS_WARP, int N>
static void start_sum(const apr_cuda_sum *rows, const apr_norm_args *norm, const apr_cuda_activations_f16 *to, cudaStream_t stream)
{
    const int64_t n = norm->n_tokens;
    const unsigned blocks = IS_WARP ? blocks_of(n, NORM_WARPS) : (unsigned)n;
    if (to->factors == NULL) {
        k_sum<IS_WARP, N, false><<<blocks, NORM_BLOCK, 0, stream>>>(*rows, *norm, *to);
        return;
    }
    k_sum<IS_WARP, N, true><<<blocks, NORM_BLOCK, 0, stream>>>(*rows, *norm, *to);
    k_norm_shared<<<(unsigned)n, THREADS, 0, stream>>>(rows->addend != NULL ? rows->sum : rows->x, *norm, *to);
}

cudaError_t apr_cuda_sum_f16(const apr_cuda_sum *rows, const apr_norm_args *norm, const apr_cuda_activations_f16 *to, cudaStream_t stream)
{
    static const struct {
        int64_t widest;
        void (*start)(const apr_cuda_sum *, const apr_norm_args *, const apr_cuda_activations_f16 *, cudaStream_t);
    } kernels[] = {{256, start_sum<true, 8>},    {NORM_WARP_CHUNK, start_sum<true, 32>}, {2048, start_sum<false, 8>},
                   {3584, start_sum<false, 14>}, {5120, start_sum<false, 20>},           {APR_PROMPT_MAX_NORM_WIDTH, start_sum<false, 32>}};
    const bool is_row = norm->bias == NULL && apr_prompt_has_norm(norm->kind, norm->width, norm->chunk, norm->n_weight);
    const bool in_chunks = takes_chunks(to, norm->width) && is_aligned(rows->x) && is_aligned(rows->sum);

    for (const auto &k : kernels) {
        if (!is_row || !in_chunks || norm->width > k.widest) continue;
        k.start(rows, norm, to, stream);
        return cudaGetLastError();
    }
    return cudaErrorNotSupported;
}

cudaError_t apr_cuda_finish(float *out, const apr_cuda_activations_f16 *of, const float *bias, int64_t n_rows, int64_t n_out,
                            cudaStream_t stream)
{
    const bool in_fours = n_out % 4 == 0 && of->out_stride % 4 == 0 && is_aligned(out) && is_aligned(bias);
    const int64_t a_block = THREADS * (in_fours ? 4 : 1), blocks = (n_out + a_block - 1) / a_block, enough = 2048 / n_rows + 1;
    const dim3 grid((unsigned)n_rows, (unsigned)(blocks < enough ? blocks : enough));

    if (in_fours) k_finish_4<<<grid, THREADS, 0, stream>>>(out, *of, bias, n_out);
    else k_finish<<<grid, THREADS, 0, stream>>>(out, *of, bias, n_out);
    return cudaGetLastError();
}
