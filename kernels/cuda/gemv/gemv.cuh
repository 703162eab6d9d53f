/* gemv.cuh - GEMV of a few tokens for all types: each warp multiplies a few rows, straight from the packed blocks, with the tokens' inputs.
 *
 * The lanes of a warp take the pieces of its rows in turn; a run of inputs is read once (from the L1 cache) for all rows of the warp. If
 * there are too few rows to fill a GPU, the warps of a block share the columns, and their sums are added in order. All this depends only on
 * shapes, so results are reproducible. */
#ifndef APR_KERNELS_CUDA_GEMV_CUH
#define APR_KERNELS_CUDA_GEMV_CUH

#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/common/weights.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { GEMV_WARPS = 4, GEMV_ENOUGH_WARPS = 6144 };

typedef struct gemv_args {
    weight_view weight;
    const float *x, *bias; /* [n_tokens, n_in]; [n_out] or NULL */
    float *out;            /* [n_tokens, n_out] */
    int64_t n_out;
    int n_tokens;
    bool batch_invariant; /* batch invariant: a single token is computed like one of several */
    int n_parts;          /* warps that share the columns of a row: 1, 2 or 4 */

    /* Several matrices, matrix_rows apart from first_row on: each pair of a token and a rank uses the expert that its route names, each
     * pair of a token and a head the head's own matrix. x has a row per token, or per pair; out and bias are [n_pairs, n_out], [n_experts,
     * n_out]. */
    unsigned n_pairs;    /* blockIdx.y; 0: one matrix */
    const float *routes; /* [.., apr_route_row(n_used)]; NULL: heads */
    int n_used;          /* chosen experts; or heads */
    int64_t matrix_rows, first_row;
    bool x_per_choice;
    int64_t x_stride, out_stride; /* of pairs; 0: n_in, n_out */
} gemv_args;

/* Advances x, out and bias to this block's pair; returns the first row of its matrix. */
static __device__ __forceinline__ int64_t enter_pair(gemv_args &a)
{
    if (a.n_pairs == 0) return 0;
    const int64_t pair = blockIdx.y, token = pair / a.n_used, rank = pair % a.n_used;
    const int64_t matrix = a.routes != NULL ? (int64_t)a.routes[token * apr_route_row(a.n_used) + rank] : rank;
    a.x += (a.x_per_choice ? pair : token) * (a.x_stride > 0 ? a.x_stride : a.weight.n_in);
    a.out += pair * (a.out_stride > 0 ? a.out_stride : a.n_out);
    if (a.bias != NULL) a.bias += matrix * a.n_out;
    return matrix * a.matrix_rows + a.first_row;
}

/* Prefetches weights into the L2 cache. */
static __device__ __forceinline__ void prefetch_weights(const uint8_t *weights)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    ptx_prefetch(weights);
#endif
}

static __device__ __forceinline__ float dot_4(float4 a, float4 b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* Adds the products of one piece of ROWS rows with the inputs at its columns (x, the tokens n_in apart) to total. */
template <apr_dtype D, int ROWS, int TOKENS>
static __device__ __forceinline__ void multiply_piece(const piece<D> (&q)[ROWS], const float *x, const int64_t (&token)[TOKENS], int lane,
                                                      int twist, const float (&factor)[ROWS], float (&total)[ROWS][TOKENS])
{
    typedef piece<D> P;
    constexpr bool NEEDS_SUM = P::BIAS != 0.0f || P::HAS_MIN;
    float scaled[ROWS][TOKENS], below[ROWS][TOKENS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int t = 0; t < TOKENS; t++) scaled[r][t] = 0.0f, below[r][t] = 0.0f;
#pragma unroll
    for (int group = 0; group < P::SCALES; group++) {
        float sum[ROWS][TOKENS], inputs[TOKENS];
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            inputs[t] = 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; r++) sum[r][t] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < P::RUNS / P::SCALES; i++) {
            const int run = group * (P::RUNS / P::SCALES) + i, column = P::column(lane, run ^ twist);
            float4 codes[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) codes[r] = q[r].codes(run);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                const float4 in = *(const float4 *)(x + token[t] + column);
                if (NEEDS_SUM) inputs[t] += (in.x + in.y) + (in.z + in.w);
#pragma unroll
                for (int r = 0; r < ROWS; r++) sum[r][t] = dot_4(codes[r], in, sum[r][t]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float scale = q[r].scale(group), min = P::HAS_MIN ? q[r].min(group) : 0.0f;
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                const float codes = P::BIAS != 0.0f ? fmaf(-P::BIAS, inputs[t], sum[r][t]) : sum[r][t];
                scaled[r][t] = fmaf(codes, scale, scaled[r][t]);
                if (P::HAS_MIN) below[r][t] = fmaf(min, inputs[t], below[r][t]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            float sum = scaled[r][t] * (P::UNIT * q[r].block_scale());
            if (P::HAS_MIN) sum -= below[r][t] * q[r].block_min();
            total[r][t] = has_factors<D>::value ? fmaf(sum, factor[r], total[r][t]) : total[r][t] + sum;
        }
}

/* Adds the lanes' and the parts' sums and writes rows first, first + 1, ... of all tokens. */
template <int ROWS, int TOKENS>
static __device__ __forceinline__ void finish_rows(const gemv_args &a, int64_t first, int part, float (&total)[ROWS][TOKENS])
{
    __shared__ float parts[GEMV_WARPS][ROWS * TOKENS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            const float sum = warp_sum(total[r][t]);
            if (lane == 0) parts[warp][r * TOKENS + t] = sum;
        }
    __syncthreads();
    const int r = lane / TOKENS, t = lane % TOKENS;
    if (part != 0 || lane >= ROWS * TOKENS || t >= a.n_tokens || first + r >= a.n_out) return;
    float sum = parts[warp][lane];
    for (int other = 1; other < a.n_parts; other++) sum += parts[warp + other][lane];
    a.out[t * a.n_out + first + r] = a.bias != NULL ? sum + a.bias[first + r] : sum;
}

/* Minimum thread blocks of a multiprocessor: what the registers allow without spilling, on all architectures. */
static constexpr int gemv_blocks(apr_dtype dtype, int n_tokens)
{
    return n_tokens > 1 ? 2 : dtype == APR_Q5_K || dtype == APR_Q6_K ? 3 : 4;
}

template <apr_dtype D, int ROWS, int TOKENS, bool SPLIT>
__global__ void __launch_bounds__(GEMV_WARPS * 32, gemv_blocks(D, TOKENS)) k_gemv(const __grid_constant__ gemv_args args)
{
    typedef piece<D> P;
    gemv_args a = args;
    pdl_trigger();
    if (a.routes != NULL) pdl_wait(); /* the routes are written by a previous kernel */
    const int64_t expert = enter_pair(a);
    const int warp = threadIdx.x / 32, part = warp % a.n_parts;
    const int64_t first = ((int64_t)blockIdx.x * (GEMV_WARPS / a.n_parts) + warp / a.n_parts) * ROWS;
    const int n_pieces = (int)(a.weight.n_in / P::ELEMS) * P::LANES;
    const uint8_t *rows[ROWS];
    int64_t stored[ROWS], token[TOKENS];
    float total[ROWS][TOKENS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) { /* rows past the end repeat the last row */
        stored[r] = stored_row(a.weight, expert + (first + r < a.n_out ? first + r : a.n_out - 1));
        rows[r] = row_at<D>(a.weight, stored[r]);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) total[r][t] = 0.0f;
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) token[t] = (t < a.n_tokens ? t : a.n_tokens - 1) * a.weight.n_in;
    const int first_piece = part * 32 + (int)threadIdx.x % 32;
    if (a.routes == NULL && first_piece < n_pieces) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) prefetch_weights(rows[r] + (int64_t)(first_piece / P::LANES) * P::BYTES);
    }
    pdl_wait();

    for (int p = first_piece; p < n_pieces; p += 32 * a.n_parts) {
        const int block = p / P::LANES, lane = p % P::LANES, twist = TOKENS > 1 ? P::twist_of(block, lane) : 0;
        P q[ROWS];
        float factor[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) load_piece<D, SPLIT>(a.weight, rows[r], block, lane, q[r]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) factor[r] = has_factors<D>::value ? factor_at(a.weight, stored[r], (int64_t)block * P::ELEMS) : 1.0f;
        if (TOKENS > 1) { /* if inputs are read more often than codes are decoded */
#pragma unroll
            for (int r = 0; r < ROWS; r++) q[r].twist(twist);
        }
        multiply_piece<D, ROWS, TOKENS>(q, a.x + (int64_t)block * P::ELEMS, token, lane, twist, factor, total);
    }
    finish_rows<ROWS, TOKENS>(a, first, part, total);
}

/* Rows of any length, an element per lane at a time. */
template <apr_dtype D> __global__ void __launch_bounds__(GEMV_WARPS * 32, 1) k_gemv_elements(const __grid_constant__ gemv_args args)
{
    gemv_args a = args;
    pdl_trigger_and_wait();
    const int64_t expert = enter_pair(a), row = (int64_t)blockIdx.x * GEMV_WARPS + threadIdx.x / 32;
    const int64_t stored = stored_row(a.weight, expert + (row < a.n_out ? row : 0));
    if (row >= a.n_out) return;
    for (int t = 0; t < a.n_tokens; t++) {
        float sum = 0.0f;
        for (int64_t i = threadIdx.x % 32; i < a.weight.n_in; i += 32) {
            const float value = element<D>(a.weight, stored, i);
            sum = fmaf(has_factors<D>::value ? value * factor_at(a.weight, stored, i) : value, a.x[t * a.weight.n_in + i], sum);
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) a.out[t * a.n_out + row] = a.bias != NULL ? sum + a.bias[row] : sum;
    }
}

/* The grid for warps of n_rows rows each; sets how many warps share the columns of a row, which has n_pieces pieces. */
static inline dim3 gemv_grid(gemv_args *a, int n_rows, int64_t n_pieces)
{
    const int64_t groups = (a->n_out + n_rows - 1) / n_rows, n_pairs = a->n_pairs > 0 ? a->n_pairs : 1;
    a->n_parts = 1;
    while (a->n_parts < GEMV_WARPS && groups * n_pairs * a->n_parts < GEMV_ENOUGH_WARPS && n_pieces >= 64 * a->n_parts) a->n_parts *= 2;
    const int64_t groups_a_block = GEMV_WARPS / a->n_parts;
    return dim3(blocks_of(groups, groups_a_block), (unsigned)n_pairs);
}

template <apr_dtype D, int ROWS, int TOKENS> cudaError_t start_gemv(gemv_args a, cudaStream_t stream)
{
    const dim3 grid = gemv_grid(&a, ROWS, a.weight.n_in / piece<D>::ELEMS * piece<D>::LANES);
    if constexpr (has_split_heads(D))
        if (a.weight.tiled) return launch_pdl(k_gemv<D, ROWS, TOKENS, true>, grid, GEMV_WARPS * 32, 0, stream, a);
    return launch_pdl(k_gemv<D, ROWS, TOKENS, false>, grid, GEMV_WARPS * 32, 0, stream, a);
}

/* The launcher of a type: one token, or as many at a time as the registers hold. */
template <apr_dtype D> cudaError_t gemv_of(const gemv_args &a, cudaStream_t stream)
{
    constexpr int TOKENS = piece<D>::SCALES <= 4 ? 4 : 2;
    if (a.n_tokens == 1 && !a.batch_invariant) return start_gemv<D, 4, 1>(a, stream);
    gemv_args some = a;
    cudaError_t error = cudaSuccess;
    for (int first = 0; first < a.n_tokens && error == cudaSuccess; first += TOKENS) {
        some.n_tokens = a.n_tokens - first < TOKENS ? a.n_tokens - first : TOKENS;
        some.x = a.x + first * a.weight.n_in;
        some.out = a.out + first * a.n_out;
        error = start_gemv<D, 2, TOKENS>(some, stream);
    }
    return error;
}

template <apr_dtype D> cudaError_t gemv_of_plain(const gemv_args &a, cudaStream_t stream)
{
    if (in_pieces<D>(a.weight)) return gemv_of<D>(a, stream);
    const dim3 grid(blocks_of(a.n_out, GEMV_WARPS), a.n_pairs > 0 ? a.n_pairs : 1);
    return launch_pdl(k_gemv_elements<D>, grid, GEMV_WARPS * 32, 0, stream, a);
}

typedef cudaError_t (*gemv_fn)(const gemv_args &args, cudaStream_t stream);

/* The launcher of a matrix, NULL where its type has none. */
gemv_fn apr_cuda_gemv_of(const apr_tensor *matrix);
/* The launcher of packed matrices in the canonical layout. */
cudaError_t gemv_of_canonical(const gemv_args &args, cudaStream_t stream);
/* NULL: the type is not in that file. */
gemv_fn gemv_of_blocks_type(apr_dtype dtype);
gemv_fn gemv_of_k_type(apr_dtype dtype);
gemv_fn gemv_of_plain_type(apr_dtype dtype);

/* clang-format off */
#define GEMV_CASE(id)       case APR_##id: return gemv_of<APR_##id>;
#define GEMV_PLAIN_CASE(id) case APR_##id: return gemv_of_plain<APR_##id>;
/* clang-format on */

#endif
