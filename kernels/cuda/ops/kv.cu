/* kv.cu - keys and values into the cache. */
#include "kernels/cuda/ops/ops.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

enum { BLOCK = 256 };

/* Which row of the cache a token's head has. */
static __device__ __forceinline__ int64_t cell_of(const apr_kv_store_args &a, const apr_cache &cache, int64_t token, int64_t head)
{
    return (position_of(a.position, a.position_at) + token) % cache.n_cells * a.n_kv_heads + head;
}

/* A thread a number, of keys (blockIdx.y 0) or of values (1). */
template <typename OUT, OUT (*FROM)(float)>
static __global__ void __launch_bounds__(BLOCK) k_store(const __grid_constant__ apr_kv_store_args a)
{
    const apr_cache &cache = blockIdx.y ? a.values : a.keys;
    const float *const x = blockIdx.y ? a.v : a.k;
    const int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x, width = blockIdx.y ? a.value_dim : a.key_dim;
    if (at >= a.n_tokens * a.n_kv_heads * width) return;
    const int64_t row = at / width, t = row / a.n_kv_heads, head = row % a.n_kv_heads;
    const int64_t cell = cell_of(a, cache, t, head);
    uint8_t *const to = cache.data + cell * cache.row_bytes;
    ((OUT *)to)[at % width] = FROM(x[at]);
}

static __device__ __forceinline__ float same(float x) { return x; }
static __device__ __forceinline__ __half to_half(float x) { return __float2half_rn(x); }
static __device__ __forceinline__ __nv_bfloat16 to_bf16(float x) { return __float2bfloat16_rn(x); }
static __device__ __forceinline__ uint8_t to_e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }

/* A warp a block of 32, encoded as kernels/ref does. */
static __global__ void __launch_bounds__(BLOCK) k_store_q8_0(const __grid_constant__ apr_kv_store_args a)
{
    const apr_cache &cache = blockIdx.y ? a.values : a.keys;
    const int lane = threadIdx.x % 32;
    const int64_t blocks_a_row = (blockIdx.y ? a.value_dim : a.key_dim) / 32, at = (int64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (at >= a.n_tokens * a.n_kv_heads * blocks_a_row) return;
    const int64_t row = at / blocks_a_row, t = row / a.n_kv_heads, head = row % a.n_kv_heads;
    const int64_t cell = cell_of(a, cache, t, head);
    uint8_t *const to = cache.data + cell * cache.row_bytes + at % blocks_a_row * 34;
    const float limit = 65504.0f * 127.0f, given = (blockIdx.y ? a.v : a.k)[at * 32 + lane];
    const float x = given == given ? fminf(fmaxf(given, -limit), limit) : 0.0f;
    float most = fabsf(x);
    for (int lanes = 16; lanes > 0; lanes /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    const float d = __fdiv_rn(most, 127.0f), inverse = d > 0x1p-126f ? __fdiv_rn(1.0f, d) : 0.0f;
    const float scaled = __fmul_rn(x, inverse), whole = truncf(scaled), rest = scaled - whole;
    to[2 + lane] = (uint8_t)(int)(whole + (rest >= 0.5f ? 1.0f : 0.0f) - (rest <= -0.5f ? 1.0f : 0.0f));
    if (lane == 0) *(unsigned short *)to = __half_as_ushort(__float2half_rn(d));
}

cudaError_t apr_cuda_kv_store(const apr_kv_store_args *a, cudaStream_t stream)
{
    const int64_t widest = a->v != NULL && a->value_dim > a->key_dim ? a->value_dim : a->key_dim, n = a->n_tokens * a->n_kv_heads * widest;
    if (a->keys.dtype != a->values.dtype) return cudaErrorInvalidValue;
    if (n == 0) return cudaSuccess;
    const dim3 grid((unsigned)((n + BLOCK - 1) / BLOCK), a->v != NULL ? 2 : 1);
    switch ((int)a->keys.dtype) {
    case APR_F32: k_store<float, same><<<grid, BLOCK, 0, stream>>>(*a); break;
    case APR_F16: k_store<__half, to_half><<<grid, BLOCK, 0, stream>>>(*a); break;
    case APR_BF16: k_store<__nv_bfloat16, to_bf16><<<grid, BLOCK, 0, stream>>>(*a); break;
    case APR_F8_E4M3: k_store<uint8_t, to_e4m3><<<grid, BLOCK, 0, stream>>>(*a); break;
    case APR_Q8_0:
        if (a->key_dim % 32 != 0 || a->value_dim % 32 != 0) return cudaErrorInvalidValue;
        k_store_q8_0<<<grid, BLOCK, 0, stream>>>(*a);
        break;
    default: return cudaErrorNotSupported;
    }
    return cudaGetLastError();
}
