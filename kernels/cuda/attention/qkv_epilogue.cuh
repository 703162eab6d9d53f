/* qkv_epilogue.cuh - the QKV epilogue of one head by one warp: norm, rotation and cache write, with the head in shared memory in between. The bits
 * are those of norm.cu, rope.cu and kv.cu, which use the same arithmetic. */
#ifndef APR_KERNELS_CUDA_QKV_EPILOGUE_CUH
#define APR_KERNELS_CUDA_QKV_EPILOGUE_CUH

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/common/norm.cuh"

static __device__ __forceinline__ void load_head(const float *from, int n, float *head)
{
    for (int i = threadIdx.x % 32; i < n; i += 32) head[i] = __ldcg(from + i);
    __syncwarp();
}

/* The same arithmetic as one warp in norm_chunk of norm.cu. */
static __device__ __forceinline__ void norm_head(const apr_norm_args &a, int64_t begin, float *head)
{
    const int lane = threadIdx.x % 32, n = (int)a.chunk, of_weight = (int)(begin % a.n_weight);
    float sum = 0.0f;
    for (int i = lane; i < n; i += 32) sum = fmaf(head[i], head[i], sum);
    const float scale = scale_of_squares(warp_sum(sum) / (float)a.chunk, a.eps);
    for (int i = lane; i < n; i += 32) {
        float y = head[i] * scale;
        if (a.weight != NULL) y *= a.weight[of_weight + i] + a.offset;
        head[i] = y;
    }
    __syncwarp();
}

/* SHARED: the angles are in shared memory; else they are in global memory. */
template <bool SHARED> static __device__ __forceinline__ void rotate_head(const apr_rope_args &a, const float *angles, float *head)
{
    const int n = (int)a.n_freqs, start = (int)a.start;
    const bool neighbours = a.mode == APR_ROPE_NEIGHBOURS;
    for (int j = threadIdx.x % 32; j < n; j += 32) {
        const int i = start + (neighbours ? 2 * j : j), other = i + (neighbours ? 1 : n);
        const float cosine = SHARED ? angles[j] : __ldcg(angles + j), sine = SHARED ? angles[j + n] : __ldcg(angles + j + n);
        const float2 pair = rotated(head[i], head[other], cosine, sine);
        head[i] = pair.x;
        head[other] = pair.y;
    }
    __syncwarp();
}

/* Writes a head into a row of a cache. */
static __device__ __forceinline__ void put_head(apr_dtype dtype, uint8_t *to, int n, const float *head)
{
    const int lane = threadIdx.x % 32;
    if (dtype == APR_Q8_0) {
        for (int i = 0; i < n; i += 32) put_q8_0(to + i / 32 * 34, head[i + lane]);
        return;
    }
    for (int i = lane; i < n; i += 32) {
        if (dtype == APR_F16) ((__half *)to)[i] = to_half(head[i]);
        else if (dtype == APR_BF16) ((__nv_bfloat16 *)to)[i] = to_bf16(head[i]);
        else if (dtype == APR_F8_E4M3) to[i] = to_e4m3(head[i]);
        else ((float *)to)[i] = same(head[i]);
    }
}

/* Writes a head into its cell. */
static __device__ __forceinline__ void store_head(const apr_kv_store_args &a, const apr_cache &cache, int at, int n, const float *head)
{
    put_head(cache.dtype, cache.data + cache_row(a, cache, 0, at) * cache.row_bytes, n, head);
}

static __device__ __forceinline__ const float *source_of(const apr_norm_args &norm, const apr_rope_args &rope)
{
    return norm.chunk > 0 ? norm.x : rope.x;
}

/* Loads head `at` of a token's queries (or keys) from the product's output, and norms and rotates it. */
static __device__ __forceinline__ void prepare_query(const apr_qkv_epilogue_args &t, int token, int at, float *head)
{
    const int64_t begin = (int64_t)at * t.store.key_dim, row = (int64_t)token * t.q.n_heads * t.store.key_dim;
    load_head(source_of(t.q_norm, t.q) + row + begin, (int)t.store.key_dim, head);
    if (t.q_norm.chunk > 0) norm_head(t.q_norm, begin, head);
    rotate_head<false>(t.q, t.q.angles + token * 2 * t.q.n_freqs, head);
}

static __device__ __forceinline__ void prepare_key(const apr_qkv_epilogue_args &t, int token, int at, float *head)
{
    const int64_t begin = (int64_t)at * t.store.key_dim, row = (int64_t)token * t.k.n_heads * t.store.key_dim;
    load_head(source_of(t.k_norm, t.k) + row + begin, (int)t.store.key_dim, head);
    if (t.k_norm.chunk > 0) norm_head(t.k_norm, begin, head);
    rotate_head<false>(t.k, t.k.angles + token * 2 * t.k.n_freqs, head);
}

#endif
