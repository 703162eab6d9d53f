/* gemv_canonical.cu - packed matrices in the canonical layout: products of a few tokens, and dequantization of rows. */
#include "kernels/cuda/common/canonical.cuh"
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/gemv/gemv.cuh"

/* --- a few tokens --- */

/* Codes of a piece: the 8 bytes of a row that a lane takes at a time. */
template <int BITS> struct canonical_piece {
    static constexpr int ELEMS = 64 / BITS, RUNS = ELEMS / 4;
    uint2 codes;
    /* The four codes of a run in the lowest bits. */
    __device__ __forceinline__ uint32_t run(int i) const
    {
        if (BITS == 8) return i == 0 ? codes.x : codes.y;
        return (i < 2 ? codes.x : codes.y) >> i % 2 * 16;
    }
};

/* Like k_gemv: a warp multiplies ROWS rows, each dequantized by the definition. ORDERED: the columns of a piece share a scale. Otherwise
 * (act order) each column has its own group, the same for all rows of a matrix. */
template <int BITS, int ROWS, int TOKENS, bool ORDERED>
__global__ void __launch_bounds__(GEMV_WARPS * 32, 2) k_gemv_canonical(const __grid_constant__ gemv_args args)
{
    typedef canonical_piece<BITS> P;
    __shared__ float levels[1 << BITS];
    const weight_view &v = args.weight;
    gemv_args a = args;
    const int64_t expert = enter_pair(a);
    const int warp = threadIdx.x / 32, part = warp % a.n_parts;
    const int64_t first = ((int64_t)blockIdx.x * (GEMV_WARPS / a.n_parts) + warp / a.n_parts) * ROWS;
    const int n_pieces = (int)(v.n_in / P::ELEMS);
    canonical_row rows[ROWS];
    int64_t token[TOKENS];
    float total[ROWS][TOKENS];
    put_levels<BITS>(v, levels);
#pragma unroll
    for (int r = 0; r < ROWS; r++) { /* rows past the end repeat the last row */
        rows[r] = canonical_row_of(v, expert + (first + r < a.n_out ? first + r : a.n_out - 1));
#pragma unroll
        for (int t = 0; t < TOKENS; t++) total[r][t] = 0.0f;
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) token[t] = (t < a.n_tokens ? t : a.n_tokens - 1) * v.n_in;

    for (int p = part * 32 + threadIdx.x % 32; p < n_pieces; p += 32 * a.n_parts) {
        const int column = p * P::ELEMS;
        P q[ROWS];
        float factor[ROWS], zero[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) q[r].codes = load_64(rows[r].codes + (int64_t)p * 8);
        if (ORDERED) {
            const uint32_t group = (uint32_t)column / (uint32_t)v.factor_columns;
#pragma unroll
            for (int r = 0; r < ROWS; r++) factor[r] = canonical_factor(v, rows[r], group), zero[r] = canonical_zero(v, rows[r], group);
        }
#pragma unroll
        for (int run = 0; run < P::RUNS; run++) {
            float4 value[ROWS];
            int4 groups;
            if (!ORDERED) groups = __ldg((const int4 *)(rows[0].groups + column + 4 * run));
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                value[r] = ORDERED ? canonical_run<BITS>(q[r].run(run), levels, zero[r], factor[r], v.canonical.dtype)
                                   : canonical_mixed_run<BITS>(v, rows[r], q[r].run(run), levels, groups);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                const float4 in = __ldg((const float4 *)(a.x + token[t] + column + 4 * run));
#pragma unroll
                for (int r = 0; r < ROWS; r++) total[r][t] = dot_4(value[r], in, total[r][t]);
            }
        }
    }
    finish_rows<ROWS, TOKENS>(a, first, part, total);
}

/* Rows of any length, an element per lane at a time. */
template <int BITS> __global__ void __launch_bounds__(GEMV_WARPS * 32, 1) k_gemv_canonical_elements(const __grid_constant__ gemv_args args)
{
    __shared__ float levels[1 << BITS];
    gemv_args a = args;
    const int64_t expert = enter_pair(a), row = (int64_t)blockIdx.x * GEMV_WARPS + threadIdx.x / 32;
    put_levels<BITS>(args.weight, levels);
    if (row >= a.n_out) return;
    const canonical_row r = canonical_row_of(args.weight, expert + row);
    for (int t = 0; t < a.n_tokens; t++) {
        float sum = 0.0f;
        for (int64_t i = threadIdx.x % 32; i < args.weight.n_in; i += 32)
            sum = fmaf(canonical_value<BITS>(args.weight, levels, r, i), __ldg(a.x + t * args.weight.n_in + i), sum);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) a.out[t * a.n_out + row] = a.bias != NULL ? sum + a.bias[row] : sum;
    }
}

template <int BITS, int ROWS, int TOKENS> static cudaError_t start_canonical(gemv_args a, cudaStream_t stream)
{
    const dim3 grid = gemv_grid(&a, ROWS, a.weight.n_in / canonical_piece<BITS>::ELEMS);
    if (a.weight.canonical.groups == NULL) k_gemv_canonical<BITS, ROWS, TOKENS, true><<<grid, GEMV_WARPS * 32, 0, stream>>>(a);
    else k_gemv_canonical<BITS, ROWS, TOKENS, false><<<grid, GEMV_WARPS * 32, 0, stream>>>(a);
    return cudaGetLastError();
}

/* Whether rows consist of whole pieces, and with act order whether a warp's rows are of one matrix. */
template <int BITS> static bool has_pieces(const gemv_args &a)
{
    const weight_view &v = a.weight;
    const bool one_matrix = v.matrix_rows >= v.n_rows || (a.n_pairs > 0 && a.matrix_rows == v.matrix_rows && a.first_row == 0);
    return in_runs_of(v, canonical_piece<BITS>::ELEMS) && (v.canonical.groups == NULL || one_matrix);
}

template <int BITS> static cudaError_t gemv_of_bits(const gemv_args &a, cudaStream_t stream)
{
    enum { TOKENS = 4 };
    if (!has_pieces<BITS>(a)) {
        const dim3 grid(blocks_of(a.n_out, GEMV_WARPS), a.n_pairs > 0 ? a.n_pairs : 1);
        k_gemv_canonical_elements<BITS><<<grid, GEMV_WARPS * 32, 0, stream>>>(a);
        return cudaGetLastError();
    }
    if (a.n_tokens == 1 && !a.batch_invariant) return start_canonical<BITS, 4, 1>(a, stream);
    gemv_args some = a;
    cudaError_t error = cudaSuccess;
    for (int first = 0; first < a.n_tokens && error == cudaSuccess; first += TOKENS) {
        some.n_tokens = a.n_tokens - first < TOKENS ? a.n_tokens - first : (int)TOKENS;
        some.x = a.x + first * a.weight.n_in;
        some.out = a.out + first * a.n_out;
        error = start_canonical<BITS, 2, TOKENS>(some, stream);
    }
    return error;
}

cudaError_t gemv_of_canonical(const gemv_args &a, cudaStream_t stream)
{
    return a.weight.canonical.bits == 4 ? gemv_of_bits<4>(a, stream) : gemv_of_bits<8>(a, stream);
}

/* --- dequantization of rows --- */

/* The same as canonical_row_of. */
static __device__ __forceinline__ canonical_row dequantize_canonical_row(const dequantize_launch &l, uint32_t i)
{
    const weight_view &v = l.a.weight;
    const uint32_t row = dequantized_row(l.a, i), matrix = over(l.matrix, row);
    canonical_row r;
    r.codes = v.data + row * v.row_bytes;
    r.groups = v.canonical.groups != NULL ? v.canonical.groups + matrix * v.n_in : NULL;
    r.factors = dequantized_factors_of(l, row);
    r.global_scale = v.canonical.global_scales != NULL ? __ldg(v.canonical.global_scales + matrix) : 1.0f;
    return r;
}

enum { CANONICAL_RUNS = 4 }; /* of a thread, of 8 columns each */

template <int BITS, typename OUT>
static __device__ __forceinline__ void dequantize_canonical_run(const dequantize_launch &l, const float *levels, uint32_t at)
{
    const weight_view &v = l.a.weight;
    const uint32_t i = over(l.parts, at), column = 8 * (at - i * l.parts.d);
    const canonical_row r = dequantize_canonical_row(l, i);
    const uint32_t low = load_32(r.codes + (BITS == 8 ? column : column / 2)), high = BITS == 8 ? load_32(r.codes + column + 4) : low >> 16;
    OUT *const out = (OUT *)l.a.out + (int64_t)i * v.n_in + column;

    if (r.groups != NULL) {
        const int4 *const groups = (const int4 *)(r.groups + column);
        put_8(out, canonical_mixed_run<BITS>(v, r, low, levels, __ldg(groups)),
              canonical_mixed_run<BITS>(v, r, high, levels, __ldg(groups + 1)));
        return;
    }
    const uint32_t group = over(l.wide, column);
    const float zero = canonical_zero(v, r, group), factor = canonical_factor(v, r, group);
    put_8(out, canonical_run<BITS>(low, levels, zero, factor, v.canonical.dtype),
          canonical_run<BITS>(high, levels, zero, factor, v.canonical.dtype));
}

template <int BITS, typename OUT>
__global__ void __launch_bounds__(DEQUANTIZE_THREADS, 2) k_dequantize_canonical(const __grid_constant__ dequantize_launch l)
{
    __shared__ float levels[1 << BITS];
    const uint32_t first = blockIdx.x * (DEQUANTIZE_THREADS * CANONICAL_RUNS) + threadIdx.x;

    put_levels<BITS>(l.a.weight, levels);
#pragma unroll
    for (int j = 0; j < CANONICAL_RUNS; j++)
        if (first + j * DEQUANTIZE_THREADS < l.n_parts) dequantize_canonical_run<BITS, OUT>(l, levels, first + j * DEQUANTIZE_THREADS);
}

/* The same for rows of any length, a column at a time. */
template <int BITS, typename OUT>
__global__ void __launch_bounds__(DEQUANTIZE_THREADS, 2) k_dequantize_canonical_elements(const __grid_constant__ dequantize_launch l)
{
    __shared__ float levels[1 << BITS];
    const uint32_t at = blockIdx.x * DEQUANTIZE_THREADS + threadIdx.x, i = over(l.parts, at), column = at - i * l.parts.d;

    put_levels<BITS>(l.a.weight, levels);
    if (at < l.n_parts) put_1((OUT *)l.a.out + at, canonical_value<BITS>(l.a.weight, levels, dequantize_canonical_row(l, i), column));
}

template <int BITS, typename OUT> static cudaError_t dequantize_canonical_as(const dequantize_args &a, cudaStream_t stream)
{
    const int64_t n_in = a.weight.n_in;
    if (in_runs_of(a.weight, 8))
        return dequantize_rows_with(k_dequantize_canonical<BITS, OUT>, a, sizeof(OUT), n_in / 8, DEQUANTIZE_THREADS * CANONICAL_RUNS,
                                    stream);
    return dequantize_rows_with(k_dequantize_canonical_elements<BITS, OUT>, a, sizeof(OUT), n_in, DEQUANTIZE_THREADS, stream);
}

template <int BITS> static cudaError_t dequantize_canonical_to(const dequantize_args &a, apr_dtype to, cudaStream_t stream)
{
    if (to == APR_F16) return dequantize_canonical_as<BITS, __half>(a, stream);
    if (to == APR_BF16) return dequantize_canonical_as<BITS, __nv_bfloat16>(a, stream);
    return dequantize_canonical_as<BITS, float>(a, stream);
}

cudaError_t dequantize_of_canonical(const dequantize_args &a, apr_dtype to, cudaStream_t stream)
{
    return a.weight.canonical.bits == 4 ? dequantize_canonical_to<4>(a, to, stream) : dequantize_canonical_to<8>(a, to, stream);
}
