/* norm.cu - norms over whole rows, heads or groups. */
#include "kernels/cuda/common/norm.cuh"
#include "kernels/cuda/common/pdl.cuh"

template <bool IS_WARP>
static __device__ __forceinline__ void norm_chunk(const apr_norm_args &a, int64_t begin, int lane, int n_lanes, float *parts)
{
    const float *const x = a.x + begin;
    float sum = 0.0f, mean = 0.0f;

    if (a.kind == APR_NORM_LAYER) {
        for (int64_t i = lane; i < a.chunk; i += n_lanes) mean += x[i];
        mean = norm_sum<IS_WARP>(mean, parts) / (float)a.chunk;
    }
    for (int64_t i = lane; i < a.chunk; i += n_lanes) sum = fmaf(x[i] - mean, x[i] - mean, sum);
    sum = norm_sum<IS_WARP>(sum, parts);
    const float scale = norm_scale(a, sum);
    const int64_t of_weight = begin % a.n_weight;
    for (int64_t i = lane; i < a.chunk; i += n_lanes) {
        float y = (x[i] - mean) * scale;
        if (a.weight != NULL) y *= a.weight[of_weight + i] + a.offset;
        a.out[begin + i] = a.bias != NULL ? y + a.bias[of_weight + i] : y;
    }
}

/* A warp per chunk. */
static __global__ void __launch_bounds__(NORM_BLOCK) k_norm_warp(const __grid_constant__ apr_norm_args a)
{
    pdl_trigger_and_wait();
    const int64_t at = (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / 32;
    if (at < a.n_tokens * (a.width / a.chunk)) norm_chunk<true>(a, at * a.chunk, threadIdx.x % 32, 32, NULL);
}

/* A thread block per chunk. */
static __global__ void __launch_bounds__(NORM_BLOCK) k_norm_block(const __grid_constant__ apr_norm_args a)
{
    pdl_trigger_and_wait();
    __shared__ float parts[NORM_WARPS];
    norm_chunk<false>(a, blockIdx.x * a.chunk, threadIdx.x, NORM_BLOCK, parts);
}

cudaError_t apr_cuda_norm(const apr_norm_args *args, cudaStream_t stream)
{
    if (args->chunk <= 0 || args->width % args->chunk != 0 || args->n_weight <= 0) return cudaErrorInvalidValue;
    const int64_t n_chunks = args->n_tokens * (args->width / args->chunk);
    if (n_chunks == 0) return cudaSuccess;
    if (args->chunk <= NORM_WARP_CHUNK) launch_pdl(k_norm_warp, blocks_of(n_chunks, NORM_WARPS), NORM_BLOCK, 0, stream, *args);
    else launch_pdl(k_norm_block, (unsigned)n_chunks, NORM_BLOCK, 0, stream, *args);
    return cudaGetLastError();
}
