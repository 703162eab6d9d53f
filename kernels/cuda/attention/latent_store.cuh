/* latent_store.cuh - latent attention: norm, rope and the write of a token's latent into the cache, with the bits of the single operations. */
#ifndef APR_KERNELS_CUDA_LATENT_STORE_CUH
#define APR_KERNELS_CUDA_LATENT_STORE_CUH

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/common/norm.cuh"

/* The latent, normed; each warp finds the scale for itself, as k_norm_warp does. */
static __device__ __forceinline__ void norm_latent(const apr_norm_args &a, const float *x, int thread, int n_threads, float *key)
{
    const int n = (int)a.chunk, lane = thread % 32;
    float sum = 0.0f;
    for (int i = lane; i < n; i += 32) sum = fmaf(x[i], x[i], sum);
    const float scale = norm_scale(a, warp_sum(sum));
    for (int i = thread; i < n; i += n_threads) {
        const float y = x[i] * scale;
        key[i] = a.weight != NULL ? y * (a.weight[i] + a.offset) : y;
    }
}

static __device__ __forceinline__ void rotate_latent(const apr_rope_args &a, const float *angles, const float *x, int thread, int n_threads,
                                                     float *key)
{
    const int n = (int)a.n_freqs, start = (int)a.start;
    for (int i = thread; i < a.head_dim; i += n_threads)
        if (i < start || i >= start + 2 * n) key[i] = x[i];
    for (int j = thread; j < n; j += n_threads) {
        const bool neighbours = a.mode == APR_ROPE_NEIGHBOURS;
        const int i = start + (neighbours ? 2 * j : j), other = i + (neighbours ? 1 : n);
        const float2 pair = rotated(x[i], x[other], angles[j], angles[j + n]);
        key[i] = pair.x;
        key[other] = pair.y;
    }
}

static __device__ __forceinline__ void put_latent(const apr_cache &cache, const float *key, int n, int thread, int n_threads, uint8_t *to)
{
    if (cache.dtype == APR_Q8_0) {
        for (int block = thread / 32; block < n / 32; block += n_threads / 32)
            put_q8_0(to + block * 34, key[block * 32 + thread % 32], thread % 32);
        return;
    }
    for (int i = thread; i < n; i += n_threads) {
        if (cache.dtype == APR_F16) ((__half *)to)[i] = to_half(key[i]);
        else if (cache.dtype == APR_F8_E4M3) to[i] = to_e4m3(key[i]);
        else if (cache.dtype == APR_BF16) ((__nv_bfloat16 *)to)[i] = to_bf16(key[i]);
        else ((float *)to)[i] = key[i];
    }
}

/* A token's latent, by all threads of a block, a multiple of 32. `key`: shared memory for APR_LATENT_MAX_DIM numbers. */
static __device__ __forceinline__ void store_latent(const apr_latent_store_args &a, int64_t token, int thread, int n_threads, float *key)
{
    const int n = (int)a.store.key_dim, n_latent = (int)a.norm.chunk;
    const float *const x = a.norm.x + token * n;
    norm_latent(a.norm, x, thread, n_threads, key);
    rotate_latent(a.rope, a.rope.angles + token * 2 * a.rope.n_freqs, x + n_latent, thread, n_threads, key + n_latent);
    __syncthreads();
    put_latent(a.store.keys, key, n, thread, n_threads, cache_place(a.store, a.store.keys, token, 0));
}

bool apr_cuda_can_store_latent(const apr_latent_store_args *args);
/* The same in a kernel of its own, a thread block per token. */
cudaError_t apr_cuda_latent_store(const apr_latent_store_args *args, cudaStream_t stream);

#endif
