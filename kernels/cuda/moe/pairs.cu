/* pairs.cu - sorts pairs of token and expert (pairs.cuh): one thread block counts, computes prefix sums and assigns slots. */
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/moe/pairs.cuh"

enum { THREADS = 1024 };

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
    for (int i = threadIdx.x; i < n_slots; i += THREADS) to.token_of[i] = to.pair_of[i] = -1;
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
        to.token_of[slot] = p / n_used, to.pair_of[slot] = p;
    }
}

cudaError_t apr_cuda_sort_pairs(const float *routes, int64_t n_tokens, int64_t n_used, int64_t n_experts, int group_tiles,
                                const apr_pairs *to, cudaStream_t stream)
{
    const int64_t n_pairs = n_tokens * n_used, n_slots = APR_SMALL_GEMM_TILE * apr_pairs_max_tiles(n_pairs, n_experts);
    if (n_experts > APR_PAIRS_MAX_EXPERTS || n_slots > INT32_MAX || group_tiles <= 0) return cudaErrorNotSupported;
    return launch_pdl(k_sort, 1, THREADS, 0, stream, routes, (int)n_pairs, (int)n_used, (int)n_experts, group_tiles, (int)n_slots, *to);
}
