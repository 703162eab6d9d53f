/* latent_store.cu - latent attention: norm, rope and the write of a token's latent into the cache, with the bits of the single operations. */
#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/attention/rope.cuh"
#include "kernels/cuda/common/norm.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/device.cuh"

enum { THREADS = 256 };

/* The latent, normed; each warp finds the scale for itself, as k_norm_warp does. */
static __device__ __forceinline__ void norm_latent(const apr_norm_args &a, const float *x, float *key)
{
    const int n = (int)a.chunk, lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int i = lane; i < n; i += 32) sum = fmaf(x[i], x[i], sum);
    const float scale = norm_scale(a, warp_sum(sum));
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const float y = x[i] * scale;
        key[i] = a.weight != NULL ? y * (a.weight[i] + a.offset) : y;
    }
}

static __device__ __forceinline__ void rotate(const apr_rope_args &a, const float *angles, const float *x, float *key)
{
    const int n = (int)a.n_freqs, start = (int)a.start;
    for (int i = threadIdx.x; i < a.head_dim; i += THREADS)
        if (i < start || i >= start + 2 * n) key[i] = x[i];
    for (int j = threadIdx.x; j < n; j += THREADS) {
        const bool neighbours = a.mode == APR_ROPE_NEIGHBOURS;
        const int i = start + (neighbours ? 2 * j : j), other = i + (neighbours ? 1 : n);
        const float2 pair = rotated(x[i], x[other], angles[j], angles[j + n]);
        key[i] = pair.x;
        key[other] = pair.y;
    }
}

static __device__ __forceinline__ void put_key(const apr_cache &cache, const float *key, int n, uint8_t *to)
{
    if (cache.dtype == APR_Q8_0) {
        for (int block = threadIdx.x / 32; block < n / 32; block += THREADS / 32)
            put_q8_0(to + block * 34, key[block * 32 + threadIdx.x % 32]);
        return;
    }
    for (int i = threadIdx.x; i < n; i += THREADS) {
        if (cache.dtype == APR_F16) ((__half *)to)[i] = to_half(key[i]);
        else if (cache.dtype == APR_F8_E4M3) to[i] = to_e4m3(key[i]);
        else if (cache.dtype == APR_BF16) ((__nv_bfloat16 *)to)[i] = to_bf16(key[i]);
        else ((float *)to)[i] = key[i];
    }
}

/* A thread block per token. */
static __global__ void __launch_bounds__(THREADS) k_latent_store(const __grid_constant__ apr_latent_store_args a)
{
    __shared__ float key[APR_LATENT_MAX_DIM];
    const int64_t token = blockIdx.x;
    const int n = (int)a.store.key_dim, n_latent = (int)a.norm.chunk;
    const float *const x = a.norm.x + token * n;
    pdl_trigger_and_wait();
    norm_latent(a.norm, x, key);
    rotate(a.rope, a.rope.angles + token * 2 * a.rope.n_freqs, x + n_latent, key + n_latent);
    __syncthreads();
    put_key(a.store.keys, key, n, cache_place(a.store, a.store.keys, token, 0));
}

static bool is_possible(const apr_latent_store_args *a)
{
    const apr_dtype dtype = a->store.keys.dtype;
    const bool known = dtype == APR_F16 || dtype == APR_F32 || dtype == APR_BF16 || dtype == APR_F8_E4M3 || dtype == APR_Q8_0;
    return known && a->norm.kind == APR_NORM_RMS && a->norm.bias == NULL && a->norm.chunk <= NORM_WARP_CHUNK && a->store.n_kv_heads == 1 &&
           a->store.key_dim <= APR_LATENT_MAX_DIM && a->norm.chunk + a->rope.head_dim == a->store.key_dim &&
           (dtype != APR_Q8_0 || a->store.key_dim % 32 == 0);
}

apr_status apr_cuda_run_latent_store(apr_cuda_device *device, const apr_latent_store_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "norm, rope and storage of latents");
    if (!is_possible(args)) return apr_cuda_outcome(device, cudaErrorInvalidValue, err);
    if (args->store.n_tokens == 0) return APR_OK;
    return apr_cuda_outcome(device, launch_pdl(k_latent_store, (unsigned)args->store.n_tokens, THREADS, 0, device->stream, *args), err);
}
