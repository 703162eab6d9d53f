/* kv.cuh - writes numbers into a row of the cache, rounded as in kernels/ref. */
#ifndef APR_KERNELS_CUDA_KV_CUH
#define APR_KERNELS_CUDA_KV_CUH

#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/device/reduce.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

/* The row of the cache of a token's head. */
static __device__ __forceinline__ int64_t cache_row(const apr_kv_store_args &a, const apr_cache &cache, int64_t token, int64_t head)
{
    return (position_of(a.position, a.position_at) + token) % cache.n_cells * a.n_kv_heads + head;
}

/* The address of a token's head, in pages or not, of one sequence or of several. */
static __device__ __forceinline__ uint8_t *cache_place(const apr_kv_store_args &a, const apr_cache &cache, int64_t token, int64_t head)
{
    const int64_t position = position_of_token(a.position, a.position_at, a.per_sequence, token);
    int64_t cell = position % cache.n_cells;
    if (cache.pages != NULL)
        cell = (int64_t)cache.pages[(a.per_sequence ? token * cache.pages_stride : 0) + position / APR_PAGE_CELLS] * APR_PAGE_CELLS +
               position % APR_PAGE_CELLS;
    uint8_t *const data = cache.slots != NULL ? cache.data + (uint64_t)cache.slots[token] * cache.slot_bytes : cache.data;
    return data + (cell * a.n_kv_heads + head) * cache.row_bytes;
}

static __device__ __forceinline__ float same(float x) { return x; }
static __device__ __forceinline__ __half to_half(float x) { return __float2half_rn(x); }
static __device__ __forceinline__ __nv_bfloat16 to_bf16(float x) { return __float2bfloat16_rn(x); }
static __device__ __forceinline__ uint8_t to_e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }

/* Encodes a block of 32 by one warp, a number per lane. */
static __device__ __forceinline__ void put_q8_0(uint8_t *to, float given, int lane)
{
    const float limit = 65504.0f * 127.0f, x = given == given ? fminf(fmaxf(given, -limit), limit) : 0.0f;
    const float max_abs = warp_max(fabsf(x));
    const float d = __fdiv_rn(max_abs, 127.0f), inverse = d > 0x1p-126f ? __fdiv_rn(1.0f, d) : 0.0f;
    const float scaled = __fmul_rn(x, inverse), whole = truncf(scaled), rest = scaled - whole;
    to[2 + lane] = (uint8_t)(int)(whole + (rest >= 0.5f ? 1.0f : 0.0f) - (rest <= -0.5f ? 1.0f : 0.0f));
    if (lane == 0) *(unsigned short *)to = __half_as_ushort(__float2half_rn(d));
}
static __device__ __forceinline__ void put_q8_0(uint8_t *to, float given) { put_q8_0(to, given, threadIdx.x % 32); }

#endif
