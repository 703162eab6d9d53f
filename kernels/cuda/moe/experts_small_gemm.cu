/* experts_small_gemm.cu - experts of many tokens with the small GEMM: tokens are sorted by expert (pairs.cuh), and each expert's matrices are
 * read once for all its tokens.
 *
 * With few tokens a row's columns are summed in split-K parts, which depend only on shapes, so that one token with eight small matrices
 * occupies all multiprocessors. Many tokens are enough work without a split. */
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/moe/pairs.cuh"
#include "kernels/cuda/small_gemm/small_gemm_experts.cuh"
#include "kernels/cuda/small_gemm/small_gemm_fragments.cuh"

enum {
    BLOCK = 256,
    KEPT_FOURS = 3000, /* float4 of a slot's GLU output in 48 KB of shared memory; the rest, which is rare, is computed twice */
    SUMMED = 4,        /* experts whose sums a thread loads together */
};

/* The buffers in the workspace; see kernels/cuda/small_gemm_workspace.h. */
typedef struct experts_buffers {
    apr_pairs pairs;
    apr_small_gemm_inputs x, mid;
    float *gate, *up, *down; /* [splits, slots, n_mid] twice, [splits, slots, n_out] */
    int64_t n_slots, most_tiles;
    int gate_splits, down_splits;
} experts_buffers;

static apr_small_gemm_inputs inputs_at(uint8_t *work, const apr_small_gemm_inputs_offsets &offsets, int64_t n_tiles, int64_t n_in,
                                       const apr_tensor *matrix)
{
    return apr_small_gemm_inputs{apr_small_gemm_columns_of(matrix, n_in),
                                 n_in,
                                 n_tiles,
                                 work + offsets.fragments,
                                 work + offsets.sums,
                                 (float *)(work + offsets.factors),
                                 apr_cuda_small_gemm_layout(matrix->dtype)};
}

static experts_buffers place_buffers(uint8_t *work, const apr_experts_args *a, int64_t n_tokens, int n_multiprocessors)
{
    const apr_small_gemm_experts_offsets offsets = apr_cuda_small_gemm_experts_offsets(a, n_tokens, n_multiprocessors);
    experts_buffers b = {};
    b.most_tiles = offsets.most_tiles, b.n_slots = offsets.n_slots;
    b.gate_splits = offsets.gate_splits, b.down_splits = offsets.down_splits;
    b.pairs.slot_of = (int *)(work + offsets.slot_of);
    b.pairs.token_of = (int *)(work + offsets.token_of);
    b.pairs.groups = (apr_small_gemm_group *)(work + offsets.groups);
    b.pairs.n_groups = (int *)(work + offsets.n_groups);
    b.x = inputs_at(work, offsets.x, offsets.most_tiles, a->n_in, a->up);
    b.mid = inputs_at(work, offsets.mid, offsets.most_tiles, a->n_mid, a->down);
    b.gate = (float *)(work + offsets.gate), b.up = (float *)(work + offsets.up), b.down = (float *)(work + offsets.down);
    return b;
}

/* --- between the products --- */

static __device__ __forceinline__ float4 sum_splits(const float *sums, int64_t split_stride, int splits, int64_t at)
{
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int s = 0; s < splits; s++) {
        const float4 part = __ldcg((const float4 *)(sums + s * split_stride + at));
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    return sum;
}

/* A slot's expert, and the factor of its sums. Weights on inputs are applied here, since products are linear. */
typedef struct expert_slot {
    int64_t expert, at; /* at: offset of its sums */
    float factor;
} expert_slot;

static __device__ __forceinline__ expert_slot slot_of(const apr_experts_args &a, const experts_buffers &b, int slot, int pair)
{
    const float *const route = a.routes + pair / a.n_used * apr_route_row(a.n_used) + pair % a.n_used;
    const bool has_bias = a.up_bias != NULL || a.gate_bias != NULL; /* else the expert need not be loaded */
    const float factor = __ldcg(b.x.factors + slot) * (a.weight_on_input ? __ldcg(route + a.n_used) : 1.0f);
    return expert_slot{has_bias ? (int64_t)__ldcg(route) : 0, slot * a.n_mid, factor};
}

/* Four numbers of its GLU output. */
static __device__ __forceinline__ float4 glu4_of(const apr_experts_args &a, const experts_buffers &b, const expert_slot &s, int64_t i)
{
    const int64_t split_stride = b.n_slots * a.n_mid, row = s.expert * a.n_mid + i;
    const float4 up = scaled(sum_splits(b.up, split_stride, b.gate_splits, s.at + i), s.factor, a.up_bias != NULL ? a.up_bias + row : NULL);
    if (a.gate == NULL)
        return make_float4(apr_activate(a.glu.activation, up.x), apr_activate(a.glu.activation, up.y), apr_activate(a.glu.activation, up.z),
                           apr_activate(a.glu.activation, up.w));
    const float4 gate =
        scaled(sum_splits(b.gate, split_stride, b.gate_splits, s.at + i), s.factor, a.gate_bias != NULL ? a.gate_bias + row : NULL);
    return make_float4(apr_glu_of(&a.glu, gate.x, up.x), apr_glu_of(&a.glu, gate.y, up.y), apr_glu_of(&a.glu, gate.z, up.z),
                       apr_glu_of(&a.glu, gate.w, up.w));
}

/* A thread block per pair: its GLU output, kept in shared memory in between, is written as inputs of down. */
template <apr_small_gemm_layout LAYOUT>
static __global__ void __launch_bounds__(BLOCK, 2) /* with 3 it spills */
    k_glu_inputs(const __grid_constant__ apr_experts_args a, const __grid_constant__ experts_buffers b)
{
    extern __shared__ float4 row[];
    __shared__ float parts[BLOCK / 32];
    pdl_trigger_and_wait();
    const int pair = (int)blockIdx.x, slot = __ldcg(b.pairs.slot_of + pair), thread = (int)threadIdx.x, n_threads = (int)blockDim.x;
    const int n_there = (int)(a.n_mid / 4), n_pieces = (int)(b.mid.n_in / 8);
    const expert_slot own = slot_of(a, b, slot, pair);
    float most = 0.0f, times, back;
#pragma unroll 1
    for (int i = thread; i < n_there; i += n_threads) {
        const float4 glu4 = glu4_of(a, b, own, 4 * i);
        most = fmaxf(most, max_abs_of(glu4));
        if (i < KEPT_FOURS) row[i] = glu4;
    }
    power_for(block_max_of<BLOCK>(most, n_threads, parts), &times, &back);
    if (thread == 0) b.mid.factors[slot] = back;
    const auto kept = [&](int i) {
        if (i >= n_there) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        return i < KEPT_FOURS ? row[i] : glu4_of(a, b, own, 4 * i);
    };
    for (int i = thread; i - thread < n_pieces; i += n_threads) {
        const int first = i / 4 * 8 + i % 4;
        store_piece<LAYOUT>(b.mid, slot, i, i < n_pieces, input_piece{kept(first), kept(first + 4)}, times);
    }
}

static cudaError_t start_glu_inputs(const apr_experts_args *a, const experts_buffers *b, cudaStream_t stream)
{
    static void (*const kernels[])(apr_experts_args, experts_buffers) = {
        k_glu_inputs<APR_SMALL_GEMM_F16>, k_glu_inputs<APR_SMALL_GEMM_BF16>, k_glu_inputs<APR_SMALL_GEMM_WGMMA>};
    const auto kernel = kernels[b->mid.layout];
    const int64_t fours = a->n_mid / 4, n_kept = fours < KEPT_FOURS ? fours : (int64_t)KEPT_FOURS, n_threads = (fours + 31) / 32 * 32;
    /* the same carveout as the next kernels, which then need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_pdl(kernel, (unsigned)(a->n_tokens * a->n_used), n_threads < BLOCK ? (unsigned)n_threads : (unsigned)BLOCK,
                      (size_t)n_kept * sizeof(float4), stream, *a, *b);
}

/* Four rows per thread. */
static __global__ void __launch_bounds__(BLOCK, 3)
    k_sum_experts(const __grid_constant__ apr_small_gemm_experts e, int64_t n_tokens, float *out)
{
    pdl_trigger_and_wait();
    const int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x, fours = e.n_out / 4, t = at / fours, r = at % fours * 4;
    if (t >= n_tokens) return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (int first = 0; first < e.n_used; first += SUMMED) {
        expert_term terms[SUMMED];
#pragma unroll
        for (int i = 0; i < SUMMED; i++) terms[i] = expert_term_of(e, t, min(first + i, e.n_used - 1));
        sum = add_experts4<SUMMED>(e, terms, e.n_used - first, r, sum);
    }
    *(float4 *)(out + 4 * at) = sum;
}

/* --- the operation --- */

static cudaError_t multiply(const experts_buffers *b, apr_small_gemm_args args, const apr_small_gemm_inputs *inputs, int64_t rows,
                            int splits, int group_tiles, int n_multiprocessors, cudaStream_t stream)
{
    args.inputs = *inputs;
    args.groups = b->pairs.groups, args.n_groups = b->pairs.n_groups;
    args.most_groups = (int)b->most_tiles, args.most_tiles = group_tiles;
    args.matrix_rows = rows, args.n_slots = b->n_slots, args.splits = splits;
    return apr_cuda_small_gemm(&args, n_multiprocessors, stream);
}

/* What is done with the experts' sums: a step's rows go on with them. */
typedef struct experts_end {
    const apr_rows_experts *rows; /* NULL: they are the output */
} experts_end;

static cudaError_t start_sums(const apr_experts_args *a, const experts_buffers *b, const experts_end *end, cudaStream_t stream)
{
    const apr_small_gemm_experts sums = {a->routes,  b->pairs.slot_of, b->mid.factors, b->down,        a->down_bias,
                                         b->n_slots, a->n_out,         (int)a->n_used, b->down_splits, a->weight_on_input};
    if (end->rows != NULL) return apr_cuda_small_gemm_rows_experts(&sums, end->rows->residual, end->rows->sum, &end->rows->inputs, stream);
    return launch_pdl(k_sum_experts, blocks_of(a->n_tokens * a->n_out / 4, BLOCK), BLOCK, 0, stream, sums, a->n_tokens, a->out);
}

/* Sorts the pairs, and writes their inputs. */
static cudaError_t start_inputs(const apr_experts_args *a, const experts_buffers *b, int group_tiles, cudaStream_t stream)
{
    cudaError_t error =
        apr_cuda_sort_few_pairs(a->routes, a->n_tokens, a->n_used, a->n_experts, group_tiles, a->x, &b->pairs, &b->x, stream);
    if (error != cudaErrorNotSupported) return error;
    error = apr_cuda_sort_pairs(a->routes, a->n_tokens, a->n_used, a->n_experts, group_tiles, &b->pairs, stream);
    return error == cudaSuccess ? apr_cuda_small_gemm_prepare(a->x, b->pairs.token_of, a->n_tokens, &b->x, stream) : error;
}

static cudaError_t some_tokens(const apr_experts_args *a, const experts_end *end, int group_tiles, int n_multiprocessors,
                               cudaStream_t stream)
{
    const experts_buffers b = place_buffers((uint8_t *)a->work.data, a, a->n_tokens, n_multiprocessors);
    apr_small_gemm_args first = {}, second = {};
    if (a->gate != NULL) first.parts[first.n_parts++] = apr_small_gemm_part{a->gate, NULL, b.gate};
    first.parts[first.n_parts++] = apr_small_gemm_part{a->up, NULL, b.up};
    second.parts[second.n_parts++] = apr_small_gemm_part{a->down, NULL, b.down};

    cudaError_t error = start_inputs(a, &b, group_tiles, stream);
    if (error == cudaSuccess) error = multiply(&b, first, &b.x, a->n_mid, b.gate_splits, group_tiles, n_multiprocessors, stream);
    if (error == cudaSuccess) error = start_glu_inputs(a, &b, stream);
    if (error == cudaSuccess) error = multiply(&b, second, &b.mid, a->n_out, b.down_splits, group_tiles, n_multiprocessors, stream);
    return error == cudaSuccess ? start_sums(a, &b, end, stream) : error;
}

static bool is_supported(const apr_tensor *m, int64_t rows, int64_t n_in, int major)
{
    return m->packing == NULL && m->scale == NULL && m->pending.kind == APR_STEP_NONE && (uintptr_t)m->data % 16 == 0 &&
           apr_cuda_has_small_gemm(m->dtype, m->tiled, rows, apr_small_gemm_columns_of(m, n_in), major);
}

/* Tokens that are computed at a time: up to 64 always together, so that results do not depend on the workspace; more as it has offsets. 0: no
 * room at all. */
static int64_t tokens_at_a_time(const apr_experts_args *a, int n_multiprocessors)
{
    const size_t n_bytes = a->work.slice * sizeof(float);
    int64_t n = a->n_tokens;
    if (apr_cuda_experts_small_gemm_bytes(a, APR_SMALL_GEMM_MAX_TOKENS, n_multiprocessors) > n_bytes) return 0;
    while (n > APR_SMALL_GEMM_MAX_TOKENS && apr_cuda_experts_small_gemm_bytes(a, n, n_multiprocessors) > n_bytes) n = (n + 1) / 2;
    return n;
}

/* Tiles of a group: as many as an expert may have, or, with WGMMA, which also multiplies tiles that do not exist, as most experts have. 0:
 * no kernel. */
static int group_tiles_of(const apr_experts_args *a, apr_dtype dtype, int64_t n_tokens)
{
    const int most = apr_cuda_small_gemm_group_tiles(dtype, n_tokens);
    const int64_t twice_usual = 2 * n_tokens * a->n_used / a->n_experts;
    int n = 1;
    if (apr_cuda_small_gemm_layout(dtype) != APR_SMALL_GEMM_WGMMA) return most;
    while (n < most && n * APR_SMALL_GEMM_TILE < twice_usual) n *= 2;
    return n < most ? n : most;
}

static cudaError_t all_tokens(const apr_experts_args *a, const experts_end *end, int n_multiprocessors, int major, cudaStream_t stream)
{
    if (!is_supported(a->up, a->n_mid, a->n_in, major) || !is_supported(a->down, a->n_out, a->n_mid, major)) return cudaErrorNotSupported;
    if (a->gate != NULL &&
        (!is_supported(a->gate, a->n_mid, a->n_in, major) || a->gate->dtype != a->up->dtype || a->gate->tiled != a->up->tiled))
        return cudaErrorNotSupported;
    if (((uintptr_t)a->x | (uintptr_t)a->out | (uintptr_t)a->work.data) % 16 != 0 || a->n_experts > APR_PAIRS_MAX_EXPERTS)
        return cudaErrorNotSupported;
    const int64_t most = tokens_at_a_time(a, n_multiprocessors);
    const int of_up = group_tiles_of(a, a->up->dtype, most), of_down = group_tiles_of(a, a->down->dtype, most);
    const int group_tiles = of_up < of_down ? of_up : of_down;
    cudaError_t error = cudaSuccess;

    if (most == 0 || group_tiles == 0) return cudaErrorNotSupported;
    for (int64_t first = 0; first < a->n_tokens && error == cudaSuccess; first += most) {
        apr_experts_args some = *a;
        some.n_tokens = a->n_tokens - first < most ? a->n_tokens - first : most;
        some.x = a->x + first * a->n_in;
        some.routes = a->routes + first * apr_route_row(a->n_used);
        some.out = a->out + first * a->n_out;
        error = some_tokens(&some, end, group_tiles, n_multiprocessors, stream);
    }
    return error;
}

cudaError_t apr_cuda_experts_small_gemm(const apr_experts_args *a, int n_multiprocessors, int major, cudaStream_t stream)
{
    const experts_end end = {NULL};
    return all_tokens(a, &end, n_multiprocessors, major, stream);
}

/* The slots come first in the workspace. */
cudaError_t apr_cuda_experts_small_gemm_rows(const apr_rows_experts *args, int n_multiprocessors, int major, cudaStream_t stream)
{
    const size_t of_slots = APR_ROWS_SLOTS * apr_cuda_rows_slot_bytes(args->inputs.workspace.widest) / sizeof(float);
    const experts_end end = {args};
    apr_experts_args a = args->experts;
    if (a.n_tokens > APR_ROWS_MAX_TOKENS || a.n_used > APR_SMALL_GEMM_MOST_SUMMED || a.work.slice < of_slots) return cudaErrorNotSupported;
    a.work.data += of_slots;
    a.work.slice -= of_slots;
    return all_tokens(&a, &end, n_multiprocessors, major, stream);
}
