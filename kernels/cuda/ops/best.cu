/* best.cu - the largest of a row of logits on the device: a block sorts 1024 keys and keeps the best, again and again until one block is
 * left. Keys are a total order (kernels/best.h), so how the row is cut does not matter. The sum goes in an order that depends on the
 * row's length alone. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/ops/follow.cuh"

enum { CHUNK = APR_CUDA_BEST_CHUNK, SORTERS = CHUNK / 2, SUMMERS = 256, SUMMED = APR_BEST_PART };

static __device__ __forceinline__ void order_pair(uint64_t &a, uint64_t &b, bool larger_first)
{
    const uint64_t x = a, y = b;
    if ((x < y) == larger_first) a = y, b = x;
}

/* Bitonic: every SORTERS-th thread a pair, the largest first in the end. */
static __device__ __forceinline__ void sort_keys(uint64_t *keys)
{
    for (int width = 2; width <= CHUNK; width *= 2)
        for (int apart = width / 2; apart > 0; apart /= 2) {
            const int i = threadIdx.x / apart * 2 * apart + threadIdx.x % apart;
            __syncthreads();
            order_pair(keys[i], keys[i + apart], (i & width) == 0);
        }
    __syncthreads();
}

static __device__ __forceinline__ uint64_t larger_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* keys[0] becomes the largest. */
static __device__ __forceinline__ void find_largest(uint64_t *keys)
{
    for (int apart = CHUNK / 2; apart > 0; apart /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < apart) keys[threadIdx.x] = larger_of(keys[threadIdx.x], keys[threadIdx.x + apart]);
    }
    __syncthreads();
}

/* A block's share: of logits, or of what blocks before have kept. */
template <typename FROM> static __device__ __forceinline__ uint64_t key_of(const FROM *from, int64_t i, int64_t n);
template <> __device__ __forceinline__ uint64_t key_of(const float *from, int64_t i, int64_t n)
{
    return i < n ? apr_best_key(from[i], i) : 0;
}
template <> __device__ __forceinline__ uint64_t key_of(const uint64_t *from, int64_t i, int64_t n) { return i < n ? from[i] : 0; }

template <typename FROM>
static __global__ void __launch_bounds__(SORTERS) k_keep_best(const FROM *from, int64_t n, int n_kept, uint64_t *out)
{
    __shared__ uint64_t keys[CHUNK];
    follow_previous();
    const int64_t first = (int64_t)blockIdx.x * CHUNK;

    for (int i = threadIdx.x; i < CHUNK; i += SORTERS) keys[i] = key_of<FROM>(from, first + i, n);
    if (n_kept == 1) find_largest(keys);
    else sort_keys(keys);
    if ((int)threadIdx.x < n_kept) out[(int64_t)blockIdx.x * n_kept + threadIdx.x] = keys[threadIdx.x];
}

static __device__ __forceinline__ double warp_sum_of(double x)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

/* A block's share of SUMMED logits. */
static __global__ void __launch_bounds__(SUMMERS)
    k_sum_parts(const float *logits, int64_t n, float temperature, const apr_cuda_found *found, double *parts)
{
    __shared__ double warps[SUMMERS / 32];
    follow_previous();
    const int64_t first = (int64_t)blockIdx.x * SUMMED;
    const float largest = apr_best_logit(found->keys[0]);
    double sum = 0.0;

    for (int64_t i = first + threadIdx.x; i < first + SUMMED && i < n; i += SUMMERS) {
        const float weight = expf(__fdiv_rn(logits[i] - largest, temperature));
        sum += isnan(weight) ? 0.0 : (double)weight;
    }
    sum = warp_sum_of(sum);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < SUMMERS / 32; i++) sum += warps[i];
    parts[blockIdx.x] = sum;
}

static __global__ void k_join_sum(const double *parts, int64_t n, apr_cuda_found *found)
{
    double sum = 0.0;
    follow_previous();
    for (int64_t i = threadIdx.x; i < n; i += 32) sum += parts[i];
    sum = warp_sum_of(sum);
    if (threadIdx.x == 0) found->sum = sum;
}

/* Stage after stage, from one half of the workspace into the other, the last into `found`. */
static cudaError_t find_keys(const float *logits, int64_t n, int n_kept, uint64_t *work, uint64_t *found, cudaStream_t stream)
{
    uint64_t *const halves[2] = {work, work + apr_cuda_best_chunks(n) * APR_MOST_BEST};
    int64_t n_blocks = apr_cuda_best_chunks(n);
    uint64_t *out = n_blocks == 1 ? found : halves[0];

    launch_following(k_keep_best<float>, (unsigned)n_blocks, SORTERS, 0, stream, logits, n, n_kept, out);
    for (int stage = 1; n_blocks > 1; stage++) {
        const uint64_t *const from = out;
        const int64_t n_keys = n_blocks * n_kept;
        n_blocks = apr_cuda_best_chunks(n_keys);
        out = n_blocks == 1 ? found : halves[stage % 2];
        launch_following(k_keep_best<uint64_t>, (unsigned)n_blocks, SORTERS, 0, stream, from, n_keys, n_kept, out);
    }
    return cudaGetLastError();
}

apr_status apr_cuda_find_best(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                              apr_cuda_found *found, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "finding the likeliest tokens");
    if (n < 1 || n > INT32_MAX || n_wanted < 1 || n_wanted > APR_MOST_BEST)
        return apr_fail(err, APR_E_USAGE, "the best %d of %lld logits", n_wanted, (long long)n);
    cudaError_t error = find_keys(logits, n, n_wanted, (uint64_t *)work, found->keys, device->stream);
    if (temperature > 0.0f && error == cudaSuccess) {
        const int64_t n_parts = apr_best_parts(n);
        double *const parts = n_parts <= APR_MOST_PARTS ? found->parts : (double *)work;
        launch_following(k_sum_parts, (unsigned)n_parts, SUMMERS, 0, device->stream, logits, n, temperature, (const apr_cuda_found *)found,
                         parts);
        launch_following(k_join_sum, 1, 32, 0, device->stream, (const double *)parts, n_parts, found);
        error = cudaGetLastError();
    }
    return apr_cuda_outcome(device, error, err);
}
