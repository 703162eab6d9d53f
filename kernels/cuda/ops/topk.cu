/* topk.cu - top-k of a row of logits on the device: a thread block sorts 1024 keys and keeps the largest, pass after pass until one block
 * is left. Keys are a total order (kernels/topk.h), so the division of the row does not matter. The order of the softmax sum depends only
 * on the row's length. */
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { CHUNK = APR_CUDA_TOPK_CHUNK, SORTERS = CHUNK / 2, SUMMERS = 256, SUMMED = APR_TOPK_PART };

static __device__ __forceinline__ void order_pair(uint64_t &a, uint64_t &b, bool larger_first)
{
    const uint64_t x = a, y = b;
    if ((x < y) == larger_first) a = y, b = x;
}

/* Bitonic sort by SORTERS threads, a pair each; the largest key is first. */
static __device__ __forceinline__ void sort_keys(uint64_t *keys)
{
    for (int width = 2; width <= CHUNK; width *= 2)
        for (int distance = width / 2; distance > 0; distance /= 2) {
            const int i = threadIdx.x / distance * 2 * distance + threadIdx.x % distance;
            __syncthreads();
            order_pair(keys[i], keys[i + distance], (i & width) == 0);
        }
    __syncthreads();
}

static __device__ __forceinline__ uint64_t larger_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

static __device__ __forceinline__ uint64_t warp_largest(uint64_t key)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) key = larger_of(key, __shfl_xor_sync(0xffffffffu, (unsigned long long)key, lanes));
    return key;
}

/* The largest of all threads' keys, returned in the first warp. `keys` has room for one per warp. */
static __device__ __forceinline__ uint64_t find_largest(uint64_t key, uint64_t *keys)
{
    key = warp_largest(key);
    if (threadIdx.x % 32 == 0) keys[threadIdx.x / 32] = key;
    __syncthreads();
    return threadIdx.x < 32 ? warp_largest(threadIdx.x < SORTERS / 32 ? keys[threadIdx.x] : 0) : 0;
}

/* The key of a logit, or a key that an earlier pass kept. */
template <typename FROM> static __device__ __forceinline__ uint64_t key_of(const FROM *from, int64_t i, int64_t n);
template <> __device__ __forceinline__ uint64_t key_of(const float *from, int64_t i, int64_t n)
{
    return i < n ? apr_topk_key(from[i], i) : 0;
}
template <> __device__ __forceinline__ uint64_t key_of(const uint64_t *from, int64_t i, int64_t n) { return i < n ? from[i] : 0; }

/* Rows that are searched together; blockIdx.y: the row. */
enum { MAX_ROWS = 64 };
typedef struct topk_rows {
    float temperatures[MAX_ROWS]; /* 0: no sum */
} topk_rows;

/* from: rows of n; out: rows of `stride` keys. */
template <typename FROM>
static __global__ void __launch_bounds__(SORTERS) k_topk(const FROM *from, int64_t n, int n_kept, uint64_t *out, int64_t stride)
{
    __shared__ uint64_t keys[CHUNK];
    pdl_trigger_and_wait();
    const int64_t first = (int64_t)blockIdx.x * CHUNK;
    uint64_t *const to = out + blockIdx.y * stride + (int64_t)blockIdx.x * n_kept;

    if (n_kept == 1) {
        const FROM *const row = from + blockIdx.y * n;
        const uint64_t own = larger_of(key_of<FROM>(row, first + threadIdx.x, n), key_of<FROM>(row, first + threadIdx.x + SORTERS, n));
        const uint64_t key = find_largest(own, keys);
        if (threadIdx.x == 0) to[0] = key;
        return;
    }
    for (int i = threadIdx.x; i < CHUNK; i += SORTERS) keys[i] = key_of<FROM>(from + blockIdx.y * n, first + i, n);
    sort_keys(keys);
    if ((int)threadIdx.x < n_kept) to[threadIdx.x] = keys[threadIdx.x];
}

/* A row's partial sums are in its result, or, if they are too many, in the workspace. */
static __device__ __forceinline__ double *parts_of(apr_cuda_topk_result *found, double *work, int64_t n_parts)
{
    return n_parts <= APR_TOPK_MAX_PARTS ? found[blockIdx.y].parts : work + blockIdx.y * n_parts;
}

/* Sums SUMMED logits of a row; gridDim.x parts. */
static __global__ void __launch_bounds__(SUMMERS)
    k_sum_parts(const float *logits, int64_t n, const __grid_constant__ topk_rows rows, apr_cuda_topk_result *found, double *work)
{
    __shared__ double warps[SUMMERS / 32];
    pdl_trigger_and_wait();
    const float temperature = rows.temperatures[blockIdx.y];
    if (!(temperature > 0.0f)) return;
    const float *const row = logits + blockIdx.y * n;
    const int64_t first = (int64_t)blockIdx.x * SUMMED;
    const float largest = apr_topk_logit(found[blockIdx.y].keys[0]);
    double sum = 0.0;

    for (int64_t i = first + threadIdx.x; i < first + SUMMED && i < n; i += SUMMERS) {
        const float weight = expf(__fdiv_rn(row[i] - largest, temperature));
        sum += isnan(weight) ? 0.0 : (double)weight;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < SUMMERS / 32; i++) sum += warps[i];
    parts_of(found, work, gridDim.x)[blockIdx.x] = sum;
}

static __global__ void k_combine_sum(double *work, int64_t n, const __grid_constant__ topk_rows rows, apr_cuda_topk_result *found)
{
    double sum = 0.0;
    pdl_trigger_and_wait();
    if (!(rows.temperatures[blockIdx.y] > 0.0f)) return;
    const double *const parts = parts_of(found, work, n);
    for (int64_t i = threadIdx.x; i < n; i += 32) sum += parts[i];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) found[blockIdx.y].sum = sum;
}

/* Keys that all passes keep of a row. */
static int64_t keys_of_row(int64_t n, int n_kept)
{
    const int64_t n_first = apr_cuda_topk_chunks(n) * n_kept;
    return n_first + apr_cuda_topk_chunks(n_first) * n_kept;
}

/* Pass after pass, from one half of the workspace into the other, the last one into `found`. */
static cudaError_t find_keys(const float *logits, int64_t n, unsigned n_rows, int n_kept, uint64_t *work, apr_cuda_topk_result *found,
                             cudaStream_t stream)
{
    const int64_t found_stride = (int64_t)(sizeof *found / sizeof(uint64_t));
    uint64_t *const buffers[2] = {work, work + apr_cuda_topk_chunks(n) * n_kept * n_rows};
    int64_t n_blocks = apr_cuda_topk_chunks(n);
    uint64_t *out = n_blocks == 1 ? found->keys : buffers[0];

    launch_pdl(k_topk<float>, dim3((unsigned)n_blocks, n_rows), SORTERS, 0, stream, logits, n, n_kept, out,
               n_blocks == 1 ? found_stride : n_blocks * n_kept);
    for (int stage = 1; n_blocks > 1; stage++) {
        const uint64_t *const from = out;
        const int64_t n_keys = n_blocks * n_kept;
        n_blocks = apr_cuda_topk_chunks(n_keys);
        out = n_blocks == 1 ? found->keys : buffers[stage % 2];
        launch_pdl(k_topk<uint64_t>, dim3((unsigned)n_blocks, n_rows), SORTERS, 0, stream, from, n_keys, n_kept, out,
                   n_blocks == 1 ? found_stride : n_blocks * n_kept);
    }
    return cudaGetLastError();
}

/* At most MAX_ROWS rows: all get as many keys as the row that wants most. */
static cudaError_t find_rows(const float *logits, int64_t n, unsigned n_rows, const topk_rows &rows, int n_kept, void *work,
                             apr_cuda_topk_result *found, cudaStream_t stream)
{
    bool sums = false;
    cudaError_t error = find_keys(logits, n, n_rows, n_kept, (uint64_t *)work, found, stream);
    for (unsigned r = 0; r < n_rows; r++) sums |= rows.temperatures[r] > 0.0f;
    if (!sums || error != cudaSuccess) return error;
    const int64_t n_parts = apr_topk_parts(n);
    launch_pdl(k_sum_parts, dim3((unsigned)n_parts, n_rows), SUMMERS, 0, stream, logits, n, rows, found, (double *)work);
    launch_pdl(k_combine_sum, dim3(1, n_rows), 32, 0, stream, (double *)work, n_parts, rows, found);
    return cudaGetLastError();
}

static bool is_valid_topk(int64_t n, int n_wanted) { return n >= 1 && n <= INT32_MAX && n_wanted >= 1 && n_wanted <= APR_TOPK_MAX; }

apr_status apr_cuda_topk(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                         apr_cuda_topk_result *found, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "top-k of a row of logits");
    if (!is_valid_topk(n, n_wanted)) return apr_fail(err, APR_E_USAGE, "cannot select the top %d of %lld logits", n_wanted, (long long)n);
    topk_rows rows = {};
    rows.temperatures[0] = temperature;
    return apr_cuda_outcome(device, find_rows(logits, n, 1, rows, n_wanted, work, found, device->stream), err);
}

/* Rows that the workspace has room for at a time. */
static int64_t rows_at_a_time(int64_t n, int n_kept, uint64_t n_bytes)
{
    const int64_t parts = apr_topk_parts(n) > APR_TOPK_MAX_PARTS ? apr_topk_parts(n) : 0, keys = keys_of_row(n, n_kept);
    const int64_t n_rows = (int64_t)(n_bytes / ((uint64_t)(keys > parts ? keys : parts) * sizeof(uint64_t)));
    return n_rows < 1 ? 1 : n_rows < MAX_ROWS ? n_rows : (int64_t)MAX_ROWS;
}

apr_status apr_cuda_topk_rows(apr_cuda_device *device, const float *logits, int64_t n, int64_t n_rows, const apr_topk *requests, void *work,
                              uint64_t n_bytes, apr_cuda_topk_result *found, apr_error *err)
{
    int n_kept = 1;
    cudaError_t error = cudaSuccess;

    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "top-k of several rows of logits");
    for (int64_t r = 0; r < n_rows; r++) {
        if (!is_valid_topk(n, requests[r].n_wanted))
            return apr_fail(err, APR_E_USAGE, "cannot select the top %d of %lld logits", requests[r].n_wanted, (long long)n);
        n_kept = requests[r].n_wanted > n_kept ? requests[r].n_wanted : n_kept;
    }
    const int64_t most = rows_at_a_time(n, n_kept, n_bytes);
    for (int64_t first = 0, now; first < n_rows && error == cudaSuccess; first += now) {
        topk_rows rows = {};
        now = n_rows - first < most ? n_rows - first : most;
        for (int64_t r = 0; r < now; r++) rows.temperatures[r] = requests[first + r].temperature;
        error = find_rows(logits + first * n, n, (unsigned)now, rows, n_kept, work, found + first, device->stream);
    }
    return apr_cuda_outcome(device, error, err);
}
