/* kv.cu - keys and values into the cache. */
#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { BLOCK = 256 };

/* A thread per number, of keys (blockIdx.y 0) or of values (1). */
template <typename OUT, OUT (*FROM)(float)>
static __global__ void __launch_bounds__(BLOCK) k_store(const __grid_constant__ apr_kv_store_args a)
{
    pdl_trigger_and_wait();
    const apr_cache &cache = blockIdx.y ? a.values : a.keys;
    const float *const x = blockIdx.y ? a.v : a.k;
    const int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x, width = blockIdx.y ? a.value_dim : a.key_dim;
    if (at >= a.n_tokens * a.n_kv_heads * width) return;
    const int64_t row = at / width, t = row / a.n_kv_heads, head = row % a.n_kv_heads;
    uint8_t *const to = cache_place(a, cache, t, head);
    ((OUT *)to)[at % width] = FROM(x[at]);
}

/* A warp per block of 32, encoded as kernels/ref does. */
static __global__ void __launch_bounds__(BLOCK) k_store_q8_0(const __grid_constant__ apr_kv_store_args a)
{
    pdl_trigger_and_wait();
    const apr_cache &cache = blockIdx.y ? a.values : a.keys;
    const int lane = threadIdx.x % 32;
    const int64_t blocks_a_row = (blockIdx.y ? a.value_dim : a.key_dim) / 32, at = (int64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (at >= a.n_tokens * a.n_kv_heads * blocks_a_row) return;
    const int64_t row = at / blocks_a_row, t = row / a.n_kv_heads, head = row % a.n_kv_heads;
    uint8_t *const to = cache_place(a, cache, t, head) + at % blocks_a_row * 34;
    put_q8_0(to, (blockIdx.y ? a.v : a.k)[at * 32 + lane]);
}

cudaError_t apr_cuda_kv_store(const apr_kv_store_args *a, cudaStream_t stream)
{
    const int64_t widest = a->v != NULL && a->value_dim > a->key_dim ? a->value_dim : a->key_dim, n = a->n_tokens * a->n_kv_heads * widest;
    if (a->keys.dtype != a->values.dtype) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    const dim3 grid(blocks_of(n, BLOCK), a->v != NULL ? 2 : 1);
    switch ((int)a->keys.dtype) {
    case APR_F32: launch_pdl(k_store<float, same>, grid, BLOCK, 0, stream, *a); break;
    case APR_F16: launch_pdl(k_store<__half, to_half>, grid, BLOCK, 0, stream, *a); break;
    case APR_BF16: launch_pdl(k_store<__nv_bfloat16, to_bf16>, grid, BLOCK, 0, stream, *a); break;
    case APR_F8_E4M3: launch_pdl(k_store<uint8_t, to_e4m3>, grid, BLOCK, 0, stream, *a); break;
    case APR_Q8_0:
        if (a->key_dim % 32 != 0 || a->value_dim % 32 != 0) return cudaErrorInvalidValue;
        launch_pdl(k_store_q8_0, grid, BLOCK, 0, stream, *a);
        break;
    default: return cudaErrorNotSupported;
    }
    return cudaGetLastError();
}
