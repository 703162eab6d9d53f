/* streams.cu - Gemma 3n's operations: streams of hidden states (AltUp), rows with the magnitude of others, Gaussian top-k. */
#include "kernels/cuda/common/norm.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { ALTUP_BLOCK = 256 };

/* A thread block has ALTUP_BLOCK numbers of each stream of a token. Its first threads compute the token's coefficients, and each thread
 * then mixes one number of every stream. */
static __global__ void __launch_bounds__(ALTUP_BLOCK) k_altup(const __grid_constant__ apr_altup_args a)
{
    __shared__ float coefs[APR_ALTUP_STREAMS * APR_ALTUP_STREAMS];
    pdl_trigger_and_wait();
    const int64_t n_blocks = (a.width + ALTUP_BLOCK - 1) / ALTUP_BLOCK, t = blockIdx.x / n_blocks;
    const int64_t d = blockIdx.x % n_blocks * ALTUP_BLOCK + threadIdx.x;
    const float *const routed = a.routed != NULL ? a.routed + t * a.n_streams : NULL;

    for (int64_t ij = threadIdx.x; ij < a.n_streams * a.n_y; ij += ALTUP_BLOCK) coefs[ij] = apr_altup_coef(&a, routed, ij);
    __syncthreads();
    if (d >= a.width) return;
    const float *const x = a.x + t * a.n_streams * a.width + d, *const y = a.y + t * a.n_y * a.width + d;
    const float minus = a.minus >= 0 ? x[a.minus * a.width] : 0.0f;
    for (int64_t i = 0; i < a.n_streams; i++) {
        float sum = x[i * a.width];
        for (int64_t j = 0; j < a.n_y && i >= a.first; j++) sum += coefs[i * a.n_y + j] * (y[j * a.width] - minus);
        a.out[(t * a.n_streams + i) * a.width + d] = sum;
    }
}

cudaError_t apr_cuda_altup(const apr_altup_args *a, cudaStream_t stream)
{
    const int64_t n_blocks = a->n_tokens * ((a->width + ALTUP_BLOCK - 1) / ALTUP_BLOCK);
    if (a->n_streams > APR_ALTUP_STREAMS || a->n_y > APR_ALTUP_STREAMS) return cudaErrorInvalidValue;
    if (n_blocks > 0) launch_pdl(k_altup, n_blocks, ALTUP_BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

/* The mean of (x - mean)^2, or of x^2 with mean 0. Every thread of the block gets it. */
static __device__ __forceinline__ float mean_square(const float *x, float mean, int64_t n, float *parts)
{
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += NORM_BLOCK) sum = fmaf(x[i] - mean, x[i] - mean, sum);
    return norm_sum<false>(sum, parts) / (float)n;
}

/* A thread block per row. */
static __global__ void __launch_bounds__(NORM_BLOCK) k_rescale(const __grid_constant__ apr_rescale_args a)
{
    __shared__ float parts[NORM_WARPS];
    pdl_trigger_and_wait();
    const float *const x = a.x + blockIdx.x * a.width;
    const float square = mean_square(x, 0.0f, a.width, parts);
    const float like = mean_square(a.like + blockIdx.x * a.width, 0.0f, a.width, parts);
    const float factor = sqrtf(like) / sqrtf(fmaxf(square, a.floor));
    for (int64_t i = threadIdx.x; i < a.width; i += NORM_BLOCK) a.out[blockIdx.x * a.width + i] = x[i] * factor;
}

cudaError_t apr_cuda_rescale(const apr_rescale_args *a, cudaStream_t stream)
{
    if (a->n_tokens > 0) launch_pdl(k_rescale, a->n_tokens, NORM_BLOCK, 0, stream, *a);
    return cudaGetLastError();
}

/* A thread block per row. */
static __global__ void __launch_bounds__(NORM_BLOCK) k_gauss_topk(const __grid_constant__ apr_gauss_topk_args a)
{
    __shared__ float parts[NORM_WARPS];
    pdl_trigger_and_wait();
    const float *const x = a.x + blockIdx.x * a.width;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < a.width; i += NORM_BLOCK) sum += x[i];
    const float mean = norm_sum<false>(sum, parts) / (float)a.width;
    const float least = mean + a.factor * sqrtf(mean_square(x, mean, a.width, parts));
    for (int64_t i = threadIdx.x; i < a.width; i += NORM_BLOCK) a.out[blockIdx.x * a.width + i] = fmaxf(0.0f, x[i] - least);
}

cudaError_t apr_cuda_gauss_topk(const apr_gauss_topk_args *a, cudaStream_t stream)
{
    if (a->n_tokens > 0) launch_pdl(k_gauss_topk, a->n_tokens, NORM_BLOCK, 0, stream, *a);
    return cudaGetLastError();
}
