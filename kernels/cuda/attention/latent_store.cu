/* latent_store.cu - latents into the cache (latent_store.cuh). */
#include "kernels/cuda/attention/latent_store.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/device.cuh"

enum { THREADS = 256 };

static __global__ void __launch_bounds__(THREADS) k_latent_store(const __grid_constant__ apr_latent_store_args a)
{
    __shared__ float key[APR_LATENT_MAX_DIM];
    pdl_trigger_and_wait();
    store_latent(a, blockIdx.x, threadIdx.x, THREADS, key);
}

bool apr_cuda_can_store_latent(const apr_latent_store_args *a)
{
    const apr_dtype dtype = a->store.keys.dtype;
    const bool known = dtype == APR_F16 || dtype == APR_F32 || dtype == APR_BF16 || dtype == APR_F8_E4M3 || dtype == APR_Q8_0;
    return known && a->norm.kind == APR_NORM_RMS && a->norm.bias == NULL && a->norm.chunk <= NORM_WARP_CHUNK && a->store.n_kv_heads == 1 &&
           a->store.key_dim <= APR_LATENT_MAX_DIM && a->norm.chunk + a->rope.head_dim == a->store.key_dim &&
           (dtype != APR_Q8_0 || a->store.key_dim % 32 == 0);
}

cudaError_t apr_cuda_latent_store(const apr_latent_store_args *args, cudaStream_t stream)
{
    if (args->store.n_tokens == 0) return cudaSuccess;
    if (!apr_cuda_can_store_latent(args)) return cudaErrorInvalidValue;
    return launch_pdl(k_latent_store, (unsigned)args->store.n_tokens, THREADS, 0, stream, *args);
}

apr_status apr_cuda_run_latent_store(apr_cuda_device *device, const apr_latent_store_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "norm, rope and storage of latents");
    return apr_cuda_outcome(device, apr_cuda_latent_store(args, device->stream), err);
}
