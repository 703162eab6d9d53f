/* index.cu - the index of sparse attention: the positions that score highest.
 *
 * A thread block chooses for a token. It keeps a sorted list of the best positions so far in shared memory, scores as many more, sorts all
 * of them, and keeps the better half. An entry is a 64-bit number, larger for a higher score and, among equal scores, for a lower position;
 * so the choice is the same whatever the order of the threads. */
#include "kernels/cuda/attention/attend.cuh"
#include "kernels/cuda/attention/cache_value.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { WARPS = APR_INDEX_WARPS, THREADS = 32 * WARPS };

/* Scores in the order of unsigned numbers; NaN is worse than all others. 0 is left for entries that are empty. */
static __device__ __forceinline__ uint64_t entry_of(float score, int64_t position)
{
    const uint32_t bits = __float_as_uint(score != score ? -INFINITY : score == 0.0f ? 0.0f : score);
    const uint32_t rank = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)rank << 32 | (uint32_t) ~(uint32_t)position;
}

static __device__ __forceinline__ float score_in(uint64_t entry)
{
    const uint32_t rank = (uint32_t)(entry >> 32);
    return entry == 0 ? -INFINITY : __uint_as_float(rank & 0x80000000u ? rank & 0x7fffffffu : ~rank);
}

/* Sorts n entries, a power of two: the largest first (bitonic). */
static __device__ __forceinline__ void sort(uint64_t *entries, int n)
{
    for (int width = 2; width <= n; width *= 2)
        for (int distance = width / 2; distance > 0; distance /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += THREADS) {
                const int low = i / distance * 2 * distance + i % distance, high = low + distance;
                const uint64_t a = entries[low], b = entries[high];
                if ((a < b) != ((low & width) != 0)) {
                    entries[low] = b;
                    entries[high] = a;
                }
            }
        }
    __syncthreads();
}

/* A warp scores one position; `key` has room for one. */
static __device__ __forceinline__ float score_position(const apr_index_args &a, const apr_cache &keys, int64_t token, int64_t position,
                                                       float *key)
{
    const uint8_t *const row = keys.data + apr_cache_cell(&keys, position) * keys.row_bytes;
    const float *const q = a.q + token * a.n_heads * a.head_dim, *const weights = a.weights + token * a.n_heads;
    const int dim = (int)a.head_dim, lane = threadIdx.x % 32;
    float score = 0.0f;

    for (int i = lane; i < dim; i += 32) key[i] = cache_value(keys.dtype, row, i);
    __syncwarp();
    for (int h = 0; h < a.n_heads; h++) {
        float dot = 0.0f;
        for (int i = lane; i < dim; i += 32) dot = fmaf(q[h * dim + i], key[i], dot);
        score = fmaf(weights[h], fmaxf(warp_sum(dot), 0.0f), score);
    }
    __syncwarp(); /* key may be written again */
    return score * a.scale;
}

/* n: entries that are kept, a power of two that is not below n_chosen. */
static __global__ void __launch_bounds__(THREADS, 4) k_index(const __grid_constant__ apr_index_args a, int n)
{
    extern __shared__ uint64_t entries[]; /* [2 n]; then a key for each warp */
    float *const key = (float *)(entries + 2 * n) + threadIdx.x / 32 * a.head_dim;
    const int64_t token = blockIdx.x, own = position_of_token(a.position, a.position_at, a.per_sequence, token);
    const int n_chosen = (int)a.n_chosen;
    const apr_cache keys = a.per_sequence ? cache_of_token(a.keys, token) : a.keys;
    float *const row = a.out + token * apr_index_row(a.n_chosen);
    uint64_t next = 0; /* the best that is not chosen */

    if (own < n_chosen) {
        for (int i = threadIdx.x; i < n_chosen; i += THREADS) row[i] = i <= own ? (float)i : -1.0f;
        if (threadIdx.x == 0) row[n_chosen] = apr_route_gap(0.0f, -INFINITY, 0.0f);
        return;
    }
    for (int i = threadIdx.x; i < n; i += THREADS) entries[i] = 0;
    for (int64_t first = 0; first <= own; first += n) {
        for (int i = threadIdx.x / 32; i < n; i += WARPS) {
            const bool is_there = first + i <= own;
            const float score = is_there ? score_position(a, keys, token, first + i, key) : 0.0f;
            if (threadIdx.x % 32 == 0) entries[n + i] = is_there ? entry_of(score, first + i) : 0;
        }
        sort(entries, 2 * n);
        if (entries[n_chosen] > next) next = entries[n_chosen];
        __syncthreads();
    }
    if (threadIdx.x == 0) row[n_chosen] = apr_route_gap(score_in(entries[n_chosen - 1]), score_in(next), score_in(entries[0]));
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) entries[i] = i < n_chosen ? entries[i] & 0xffffffffu : 0;
    sort(entries, n); /* the lower position has the larger number */
    for (int i = threadIdx.x; i < n_chosen; i += THREADS) row[i] = (float)(uint32_t) ~(uint32_t)entries[i];
}

cudaError_t apr_cuda_index(const apr_index_args *args, cudaStream_t stream)
{
    if (args->n_tokens == 0) return cudaSuccess;
    if (args->n_chosen < 1 || args->n_heads < 1 || args->head_dim < 1 || (args->per_sequence && args->position_at == NULL))
        return cudaErrorInvalidValue;
    if (!apr_index_fits_device(args->n_chosen, args->head_dim)) return cudaErrorNotSupported;
    const int n = (int)apr_index_entries(args->n_chosen);
    const size_t n_bytes = 2 * (size_t)n * sizeof(uint64_t) + WARPS * (size_t)args->head_dim * sizeof(float);
    k_index<<<(unsigned)args->n_tokens, THREADS, n_bytes, stream>>>(*args, n);
    return cudaGetLastError();
}
