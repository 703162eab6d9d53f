/* pairs.cu - sorts pairs of token and expert (pairs.cuh): one thread block counts, computes prefix sums and assigns slots. With few tokens
 * each token's thread block does so for all of them, and writes its inputs: a kernel less to wait for. */
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/moe/pairs.cuh"
#include "kernels/cuda/small_gemm/small_gemm_fragments.cuh"

enum {
    THREADS = 1024,
    FEW_THREADS = 512,
    FEW_WARPS = FEW_THREADS / 32,
    FEW_PAIRS = 2 * FEW_THREADS,
    KEPT = 2, /* pieces of 8 numbers of a thread */
};
static_assert((int)APR_PAIRS_MAX_EXPERTS <= 2 * (int)FEW_THREADS, "a thread adds up two experts");

/* Exclusive prefix sums of two lists, x and y of the pairs; all threads take part, n <= THREADS. */
static __device__ void add_up(int2 *x, int n)
{
    const int i = threadIdx.x;
    int2 own = i < n ? x[i] : make_int2(0, 0);
    const int2 alone = own;
    for (int step = 1; step < n; step *= 2) {
        const int2 before = i >= step && i < n ? x[i - step] : make_int2(0, 0);
        __syncthreads();
        own.x += before.x, own.y += before.y;
        if (i < n) x[i] = own;
        __syncthreads();
    }
    if (i < n) x[i] = make_int2(own.x - alone.x, own.y - alone.y);
    __syncthreads();
}

static __device__ __forceinline__ int expert_of(const float *routes, int pair, int n_used, int n_experts)
{
    const int e = (int)__ldcg(routes + (int64_t)(pair / n_used) * apr_route_row(n_used) + pair % n_used);
    return e < 0 ? 0 : e < n_experts ? e : n_experts - 1;
}

/* slot_of first holds a pair's number among those of its expert. */
static __global__ void __launch_bounds__(THREADS)
    k_sort(const float *routes, int n_pairs, int n_used, int n_experts, int group_tiles, int n_slots, const __grid_constant__ apr_pairs to)
{
    __shared__ int counts[APR_PAIRS_MAX_EXPERTS];
    __shared__ int2 before[APR_PAIRS_MAX_EXPERTS]; /* tiles and groups of earlier experts */
    pdl_trigger_and_wait();
    for (int e = threadIdx.x; e < n_experts; e += THREADS) counts[e] = 0;
    for (int i = threadIdx.x; i < n_slots; i += THREADS) to.token_of[i] = -1;
    __syncthreads();
    for (int p = threadIdx.x; p < n_pairs; p += THREADS) to.slot_of[p] = atomicAdd(&counts[expert_of(routes, p, n_used, n_experts)], 1);
    __syncthreads();
    const int e = threadIdx.x, tiles = e < n_experts ? (counts[e] + APR_SMALL_GEMM_TILE - 1) / APR_SMALL_GEMM_TILE : 0;
    const int groups = (tiles + group_tiles - 1) / group_tiles;
    if (e < n_experts) before[e] = make_int2(tiles, groups);
    __syncthreads();
    add_up(before, n_experts);
    for (int i = 0; i < groups; i++) {
        const int at = i * group_tiles, left = tiles - at;
        to.groups[before[e].y + i] = apr_small_gemm_group{e, before[e].x + at, left < group_tiles ? left : group_tiles};
    }
    if (e == n_experts - 1) *to.n_groups = before[e].y + groups;
    for (int p = threadIdx.x; p < n_pairs; p += THREADS) {
        const int slot = before[expert_of(routes, p, n_used, n_experts)].x * APR_SMALL_GEMM_TILE + to.slot_of[p];
        to.slot_of[p] = slot;
        to.token_of[slot] = p / n_used;
    }
}

/* --- few tokens --- */

typedef struct few_pairs {
    const float *routes, *x;
    int n_tokens, n_used, n_experts, group_tiles;
    apr_pairs pairs;
    apr_small_gemm_inputs to;
} few_pairs;

typedef struct sorted {
    int expert_of[FEW_PAIRS];
    int tiles[APR_PAIRS_MAX_EXPERTS]; /* pairs of an expert, then the tiles of earlier ones */
    int2 of_warp[FEW_WARPS];
    int slot_of[FEW_PAIRS]; /* of the token */
} sorted;

static __device__ __forceinline__ int2 tiles_of(int n_pairs, int group_tiles)
{
    const int tiles = (n_pairs + APR_SMALL_GEMM_TILE - 1) / APR_SMALL_GEMM_TILE;
    return make_int2(tiles, (tiles + group_tiles - 1) / group_tiles);
}
static __device__ __forceinline__ int2 plus(int2 a, int2 b) { return make_int2(a.x + b.x, a.y + b.y); }

/* Writes an expert's groups. */
static __device__ __forceinline__ void write_groups(const few_pairs &a, int expert, int2 before, int2 own)
{
    for (int i = 0; i < own.y; i++) {
        const int at = i * a.group_tiles, left = own.x - at;
        a.pairs.groups[before.y + i] = apr_small_gemm_group{expert, before.x + at, left < a.group_tiles ? left : a.group_tiles};
    }
}

/* Adds up the tiles of earlier experts, two experts a thread; the first thread block also writes all groups. */
static __device__ __forceinline__ void add_up_tiles(const few_pairs &a, sorted *s)
{
    const int thread = (int)threadIdx.x, lane = thread % 32, e = 2 * thread;
    const int2 first = e < a.n_experts ? tiles_of(s->tiles[e], a.group_tiles) : make_int2(0, 0),
               second = e + 1 < a.n_experts ? tiles_of(s->tiles[e + 1], a.group_tiles) : make_int2(0, 0), both = plus(first, second);
    int2 sum = both;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int from = max(lane - step, 0);
        const int2 before = make_int2(__shfl_sync(0xffffffffu, sum.x, from), __shfl_sync(0xffffffffu, sum.y, from));
        if (lane >= step) sum = plus(sum, before);
    }
    if (lane == 31) s->of_warp[thread / 32] = sum;
    __syncthreads();
    int2 before = make_int2(sum.x - both.x, sum.y - both.y);
    for (int i = 0; i < thread / 32; i++) before = plus(before, s->of_warp[i]);
    if (e < a.n_experts) s->tiles[e] = before.x;
    if (e + 1 < a.n_experts) s->tiles[e + 1] = before.x + first.x;
    if (blockIdx.x == 0) {
        write_groups(a, e, before, first);
        write_groups(a, e + 1, plus(before, first), second);
        if (thread == FEW_THREADS - 1) *a.pairs.n_groups = before.y + both.y;
    }
    __syncthreads();
}

/* The slots of the block's token: after the pairs of its expert that come earlier. A warp a pair. */
static __device__ __forceinline__ void find_slots(const few_pairs &a, sorted *s, int token)
{
    const int lane = (int)threadIdx.x % 32;
    for (int k = (int)threadIdx.x / 32; k < a.n_used; k += FEW_WARPS) {
        const int pair = token * a.n_used + k, expert = s->expert_of[pair];
        int earlier = 0;
        for (int p = lane; p < pair; p += 32) earlier += s->expert_of[p] == expert;
        earlier = sum_over<32>(earlier);
        if (lane > 0) continue;
        s->slot_of[k] = s->tiles[expert] * APR_SMALL_GEMM_TILE + earlier;
        a.pairs.slot_of[pair] = s->slot_of[k];
    }
    __syncthreads();
}

/* A thread block per token. */
template <apr_small_gemm_layout LAYOUT>
static __global__ void __launch_bounds__(FEW_THREADS, 1) k_few_pairs(const __grid_constant__ few_pairs a)
{
    __shared__ sorted s;
    __shared__ float parts[FEW_WARPS];
    const int thread = (int)threadIdx.x, token = (int)blockIdx.x, n_pieces = (int)(a.to.n_in / 8), n_there = (int)(a.to.n_x / 8);
    pdl_trigger();
    for (int e = thread; e < a.n_experts; e += FEW_THREADS) s.tiles[e] = 0;
    __syncthreads();
    pdl_wait();
    input_piece kept[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = thread + k * FEW_THREADS;
        kept[k] = piece_of((const float4 *)(a.x + (int64_t)token * a.to.n_x), i, i < n_there);
    }
    for (int p = thread; p < a.n_tokens * a.n_used; p += FEW_THREADS) {
        s.expert_of[p] = expert_of(a.routes, p, a.n_used, a.n_experts);
        atomicAdd(&s.tiles[s.expert_of[p]], 1);
    }
    float max_abs = 0.0f, times, back;
#pragma unroll
    for (int k = 0; k < KEPT; k++) max_abs = fmaxf(max_abs, fmaxf(max_abs_of(kept[k].first), max_abs_of(kept[k].second)));
    power_for(block_max<FEW_THREADS>(max_abs, parts), &times, &back); /* also: all have counted */
    add_up_tiles(a, &s);
    find_slots(a, &s, token);
#pragma unroll 1
    for (int used = 0; used < a.n_used; used++) {
        const int slot = s.slot_of[used];
        if (thread == 0) a.to.factors[slot] = back;
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if (k * FEW_THREADS < n_pieces)
                store_piece<LAYOUT>(a.to, slot, thread + k * FEW_THREADS, thread + k * FEW_THREADS < n_pieces, kept[k], times);
    }
}

cudaError_t apr_cuda_sort_few_pairs(const float *routes, int64_t n_tokens, int64_t n_used, int64_t n_experts, int group_tiles,
                                    const float *x, const apr_pairs *pairs, const apr_small_gemm_inputs *to, cudaStream_t stream)
{
    static void (*const kernels[])(few_pairs) = {k_few_pairs<APR_SMALL_GEMM_F16>, k_few_pairs<APR_SMALL_GEMM_BF16>,
                                                 k_few_pairs<APR_SMALL_GEMM_WGMMA>};
    const bool fits = to->n_in % GEMM_SUB == 0 && to->n_x % GEMM_SUB == 0 && to->n_x <= to->n_in && to->n_in <= 8 * KEPT * FEW_THREADS;
    if (!fits || n_tokens * n_used > FEW_PAIRS || n_experts > APR_PAIRS_MAX_EXPERTS || group_tiles <= 0 || (uintptr_t)x % 16 != 0)
        return cudaErrorNotSupported;
    const few_pairs a = {routes, x, (int)n_tokens, (int)n_used, (int)n_experts, group_tiles, *pairs, *to};
    /* the same carveout as the next kernels, which then need not wait for a reconfiguration of shared memory */
    const cudaError_t error = cudaFuncSetAttribute(kernels[to->layout], cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    return error == cudaSuccess ? launch_pdl(kernels[to->layout], (unsigned)n_tokens, FEW_THREADS, 0, stream, a) : error;
}

/* --- any number of tokens --- */

cudaError_t apr_cuda_sort_pairs(const float *routes, int64_t n_tokens, int64_t n_used, int64_t n_experts, int group_tiles,
                                const apr_pairs *to, cudaStream_t stream)
{
    const int64_t n_pairs = n_tokens * n_used, n_slots = APR_SMALL_GEMM_TILE * apr_pairs_max_tiles(n_pairs, n_experts);
    if (n_experts > APR_PAIRS_MAX_EXPERTS || n_slots > INT32_MAX || group_tiles <= 0) return cudaErrorNotSupported;
    return launch_pdl(k_sort, 1, THREADS, 0, stream, routes, (int)n_pairs, (int)n_used, (int)n_experts, group_tiles, (int)n_slots, *to);
}
