/* compare_logits.cu - the divergence of two models' next-token distributions, where their logits are. A thread block has one row.
 *
 * With m the largest logit and S = sum exp(x - m) of a row, log p = x - m - log S, and
 *     KL = sum p (log p - log q) = sum exp(x - m) (x - y) / S - (m + log S) + (m' + log S')
 * Each pass reads both rows once; sums are float64, in an order that depends on the row's length alone. */
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { THREADS = 512, WARPS = THREADS / 32 };

static __device__ __forceinline__ uint64_t larger_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The largest of all threads' keys (kernels/topk.h), for every thread. */
static __device__ __forceinline__ uint64_t block_largest(uint64_t key, uint64_t *parts)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) key = larger_of(key, __shfl_xor_sync(0xffffffffu, (unsigned long long)key, lanes));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = key;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) key = larger_of(key, parts[i]);
    __syncthreads(); /* parts may be written again */
    return key;
}

/* The first thread gets the sum. */
static __device__ __forceinline__ double first_gets_sum(double x, double *parts)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; i < WARPS && threadIdx.x == 0; i++) sum += parts[i];
    __syncthreads();
    return sum;
}

static __global__ void __launch_bounds__(THREADS)
    k_compare_logits(const float *reference, const float *other, int64_t n, const int32_t *next, apr_cuda_logits_difference *found)
{
    __shared__ uint64_t keys[WARPS];
    __shared__ double parts[WARPS];
    pdl_trigger_and_wait();
    const float *const x = reference + blockIdx.x * n, *const y = other + blockIdx.x * n;
    uint64_t top_x = 0, top_y = 0;
    double sum_x = 0.0, sum_y = 0.0, dot = 0.0;

    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        top_x = larger_of(top_x, apr_topk_key(x[i], i));
        top_y = larger_of(top_y, apr_topk_key(y[i], i));
    }
    top_x = block_largest(top_x, keys);
    top_y = block_largest(top_y, keys);
    const double most_x = (double)apr_topk_logit(top_x), most_y = (double)apr_topk_logit(top_y);
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        const double p = exp((double)x[i] - most_x);
        sum_x += p;
        sum_y += exp((double)y[i] - most_y);
        dot += p == 0.0 ? 0.0 : p * ((double)x[i] - (double)y[i]); /* a logit of -inf adds nothing */
    }
    sum_x = first_gets_sum(sum_x, parts);
    sum_y = first_gets_sum(sum_y, parts);
    dot = first_gets_sum(dot, parts);
    if (threadIdx.x > 0) return;
    const double log_x = most_x + log(sum_x), log_y = most_y + log(sum_y);
    const int32_t id = next[blockIdx.x];
    found[blockIdx.x].kl = dot / sum_x - log_x + log_y;
    found[blockIdx.x].nll_reference = id >= 0 ? log_x - (double)x[id] : 0.0;
    found[blockIdx.x].nll_other = id >= 0 ? log_y - (double)y[id] : 0.0;
    found[blockIdx.x].same_top = apr_topk_id(top_x) == apr_topk_id(top_y) && isfinite(log_x) && isfinite(log_y);
}

apr_status apr_cuda_compare_logits(apr_cuda_device *device, const float *reference, const float *other, int64_t n, int64_t n_rows,
                                   const int32_t *next, apr_cuda_logits_difference *found, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "comparison of logits");
    if (n_rows > 0 && n > 0)
        launch_pdl(k_compare_logits, dim3((unsigned)n_rows), THREADS, 0, device->stream, reference, other, n, next, found);
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}
