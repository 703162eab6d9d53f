/* norm.cu - rmsnorm over whole rows or over the chunks of heads. */
#include "kernels/cuda/ops/ops.cuh"
#include "kernels/cuda/ops/reduce.cuh"

enum { WARPS = 8, BLOCK = 32 * WARPS, WARP_CHUNK = 1024 };

static __device__ __forceinline__ float sum_of_squares(const float *x, int64_t chunk, int lane, int n_lanes)
{
    float sum = 0.0f;
    for (int64_t i = lane; i < chunk; i += n_lanes) sum = fmaf(x[i], x[i], sum);
    return sum;
}

static __device__ __forceinline__ void put_norm(const float *x, const float *weight, float *out, float scale, int64_t chunk, int lane,
                                                int n_lanes)
{
    for (int64_t i = lane; i < chunk; i += n_lanes) out[i] = x[i] * scale * weight[i];
}

/* A warp a chunk. */
static __global__ void __launch_bounds__(BLOCK) k_norm_warp(const __grid_constant__ apr_rmsnorm_args a)
{
    const int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (at >= a.n_tokens * (a.width / a.chunk)) return;
    const float *const x = a.x + at * a.chunk;
    const float sum = warp_sum(sum_of_squares(x, a.chunk, threadIdx.x % 32, 32));
    put_norm(x, a.weight, a.out + at * a.chunk, 1.0f / sqrtf(sum / (float)a.chunk + a.eps), a.chunk, threadIdx.x % 32, 32);
}

/* A block a chunk. */
static __global__ void __launch_bounds__(BLOCK) k_norm_block(const __grid_constant__ apr_rmsnorm_args a)
{
    __shared__ float parts[WARPS];
    const int64_t begin = blockIdx.x * a.chunk;
    const float sum = block_sum<BLOCK>(sum_of_squares(a.x + begin, a.chunk, threadIdx.x, BLOCK), parts);
    put_norm(a.x + begin, a.weight, a.out + begin, 1.0f / sqrtf(sum / (float)a.chunk + a.eps), a.chunk, threadIdx.x, BLOCK);
}

cudaError_t apr_cuda_rmsnorm(const apr_rmsnorm_args *args, cudaStream_t stream)
{
    if (args->chunk <= 0 || args->width % args->chunk != 0) return cudaErrorInvalidValue;
    const int64_t n_chunks = args->n_tokens * (args->width / args->chunk);
    if (n_chunks == 0) return cudaSuccess;
    if (args->chunk <= WARP_CHUNK) k_norm_warp<<<(unsigned)((n_chunks + WARPS - 1) / WARPS), BLOCK, 0, stream>>>(*args);
    else k_norm_block<<<(unsigned)n_chunks, BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}
