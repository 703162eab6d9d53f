/* turn.cu - heads of a token, or of several, normed, turned, and into the cache: what stands between three products and
 * attention, in one kernel.
 *
 * A warp a head: of the query, of the key, of the value. */
#include "kernels/cuda/ops/flow.cuh"
#include "kernels/cuda/ops/follow.cuh"
#include "kernels/cuda/ops/turn.cuh"

enum { WARPS = 4, BLOCK = 32 * WARPS };

static __device__ __forceinline__ void store_row(const apr_turn_args &a, const apr_cache &cache, int token, int at, int n,
                                                 const float *head)
{
    if (a.store.n_tokens > 1 || cache.pages != NULL || cache.slots != NULL)
        put_head(cache.dtype, cache_place(a.store, cache, token, at), n, head);
    else store_head(a.store, cache, at, n, head);
}

/* blockIdx.y: which token. */
static __global__ void __launch_bounds__(BLOCK) k_turn(const __grid_constant__ apr_turn_args a)
{
    __shared__ float heads[WARPS][APR_TURN_MOST_DIM];
    float *const head = heads[threadIdx.x / 32];
    const int n_q = (int)a.q.n_heads, n_k = (int)a.store.n_kv_heads;
    const int key_dim = (int)a.store.key_dim, value_dim = (int)a.store.value_dim;
    const int token = (int)blockIdx.y;
    int at = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32;
    follow_previous();
    if (at < n_q) {
        turn_query(a, token, at, head);
        for (int i = threadIdx.x % 32; i < key_dim; i += 32) a.q.out[((int64_t)token * n_q + at) * key_dim + i] = head[i];
        return;
    }
    at -= n_q;
    if (at < n_k) {
        turn_key(a, token, at, head);
        store_row(a, a.store.keys, token, at, key_dim, head);
        return;
    }
    at -= n_k;
    if (at >= n_k) return;
    load_head(a.store.v + ((int64_t)token * n_k + at) * value_dim, value_dim, head);
    store_row(a, a.store.values, token, at, value_dim, head);
}

/* What a product left of a token's head, as halves.cu would have gone over it. */
static __device__ __forceinline__ void load_unfinished(const float *from, const float *bias, float by, int n, float *head)
{
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        const float x = from[i];
        head[i] = bias != NULL ? fmaf(x, by, bias[i]) : __fmul_rn(x, by);
    }
    __syncwarp();
}

/* The same for token blockIdx.x of many. */
static __global__ void __launch_bounds__(BLOCK)
    k_turn_many(const __grid_constant__ apr_turn_args a, const __grid_constant__ apr_cuda_unfinished u)
{
    __shared__ float heads[WARPS][APR_TURN_MOST_DIM];
    float *const head = heads[threadIdx.x / 32];
    const int at = (int)blockIdx.y * WARPS + (int)threadIdx.x / 32, n_q = (int)a.q.n_heads, n_k = (int)a.store.n_kv_heads;
    const int which = at < n_q ? 0 : at < n_q + n_k ? 1 : 2, own = which == 0 ? at : which == 1 ? at - n_q : at - n_q - n_k;
    if (which == 2 && own >= n_k) return;
    const int dim = (int)(which == 2 ? a.store.value_dim : a.store.key_dim), begin = own * dim;
    const int64_t token = blockIdx.x, row = token * (which == 0 ? n_q : n_k) * dim + begin;
    const float *const apart = which == 0 ? source_of(a.q_norm, a.q) : which == 1 ? source_of(a.k_norm, a.k) : a.store.v;
    const float *const from = u.from[which] != NULL ? u.from[which] + token * u.stride + begin : apart + row;
    load_unfinished(from, u.bias[which] != NULL ? u.bias[which] + begin : NULL, u.scales[token], dim, head);
    if (which < 2) {
        const apr_norm_args &norm = which == 0 ? a.q_norm : a.k_norm;
        const apr_rope_args &rope = which == 0 ? a.q : a.k;
        if (norm.chunk > 0) norm_head(norm, begin, head);
        turn_head<false>(rope, rope.angles + token * 2 * rope.n_freqs, head);
    }
    if (which == 0) {
        for (int i = threadIdx.x % 32; i < dim; i += 32) a.q.out[row + i] = head[i];
        return;
    }
    const apr_cache &cache = which == 1 ? a.store.keys : a.store.values;
    put_head(cache.dtype, cache_place(a.store, cache, token, own), dim, head);
}

static bool is_cache(const apr_cache *cache, int64_t dim)
{
    switch ((int)cache->dtype) {
    case APR_F32:
    case APR_F16:
    case APR_BF16:
    case APR_F8_E4M3: return true;
    case APR_Q8_0: return dim % 32 == 0;
    default: return false;
    }
}

static bool is_rotation(const apr_rope_args *a, int64_t dim)
{
    return a->head_dim == dim && a->start >= 0 && a->n_freqs >= 0 && a->start + 2 * a->n_freqs <= dim;
}

static bool is_norm(const apr_norm_args *a, int64_t dim)
{
    return a->chunk == 0 || (a->kind == APR_NORM_RMS && a->chunk == dim && a->n_weight > 0 && a->bias == NULL);
}

bool apr_cuda_is_turn(const apr_turn_args *a)
{
    const int64_t dim = a->store.key_dim;
    return apr_turns(&a->store) && is_rotation(&a->q, dim) && is_rotation(&a->k, dim) && is_norm(&a->q_norm, dim) &&
           is_norm(&a->k_norm, dim) && a->store.v != NULL && a->k.n_heads == a->store.n_kv_heads;
}

cudaError_t apr_cuda_turn(const apr_turn_args *a, cudaStream_t stream)
{
    const int64_t n_heads = a->q.n_heads + 2 * a->store.n_kv_heads, dim = a->store.key_dim;
    const int64_t n_tokens = a->store.n_tokens;
    if (!apr_cuda_is_turn(a) || n_tokens > UINT16_MAX) return cudaErrorInvalidValue;
    if (!is_cache(&a->store.keys, dim) || !is_cache(&a->store.values, a->store.value_dim)) return cudaErrorNotSupported;
    /* As the kernels around it, which need not wait then until memory is divided anew. */
    const cudaError_t error = cudaFuncSetAttribute(k_turn, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_following(k_turn, dim3((unsigned)((n_heads + WARPS - 1) / WARPS), (unsigned)n_tokens), BLOCK, 0, stream, *a);
}

cudaError_t apr_cuda_turn_many(const apr_turn_args *a, const apr_cuda_unfinished *unfinished, cudaStream_t stream)
{
    const int64_t n_heads = a->q.n_heads + 2 * a->store.n_kv_heads, dim = a->store.key_dim;
    if (!apr_cuda_is_turn(a)) return cudaErrorInvalidValue;
    if (!is_cache(&a->store.keys, dim) || !is_cache(&a->store.values, a->store.value_dim)) return cudaErrorNotSupported;
    const dim3 grid((unsigned)a->store.n_tokens, (unsigned)((n_heads + WARPS - 1) / WARPS));
    k_turn_many<<<grid, BLOCK, 0, stream>>>(*a, *unfinished);
    return cudaGetLastError();
}
