/* attend.cu - attention: tiles where shape and cache allow, else one row of queries at a time, for values of up to 1024 numbers. */
#include "kernels/cuda/codecs/dtype.cuh"
#include "kernels/cuda/ops/attend.cuh"
#include "kernels/cuda/ops/reduce.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, CELLS = 32, MAX_DIM = 1024, EACH = MAX_DIM / THREADS };

/* Number i of a row of the cache. */
static __device__ float cache_value(apr_dtype dtype, const uint8_t *row, int64_t i)
{
    if (dtype == APR_F16) return half_float(load_16(row + 2 * i));
    if (dtype == APR_F32) return __uint_as_float(load_32(row + 4 * i));
    if (dtype == APR_BF16) return __uint_as_float(load_16(row + 2 * i) << 16);
    if (dtype == APR_F8_E4M3) return fp8_pair<__NV_E4M3>(__ldg(row + i)).x;
    const uint8_t *const block = row + i / 32 * 34; /* Q8_0 */
    return (float)(int8_t)__ldg(block + 2 + i % 32) * half_float(load_16(block));
}

static __device__ const uint8_t *cache_row(const apr_attend_args &a, const apr_cache &cache, int64_t position, int64_t kv_head)
{
    return cache.data + (position % cache.n_cells * a.n_kv_heads + kv_head) * cache.row_bytes;
}

/* A block a row of queries: 32 scores at a time, 8 a warp, then the thread's columns of the sum. */
static __global__ void __launch_bounds__(THREADS) k_rows(const __grid_constant__ apr_attend_args a)
{
    __shared__ float scores[CELLS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t token = blockIdx.x / a.n_heads, head = blockIdx.x % a.n_heads, kv_head = head / (a.n_heads / a.n_kv_heads);
    const int64_t from = first_seen(a, token), last = a.position + token;
    const float *const q = a.q + (int64_t)blockIdx.x * a.key_dim;
    float sums[EACH], largest = ATTEND_LOWEST, weight = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) sums[i] = 0.0f;

    for (int64_t position = from; position <= last; position += CELLS) {
        const int n = last - position + 1 < CELLS ? (int)(last - position + 1) : CELLS;
        for (int c = warp; c < n; c += WARPS) {
            const uint8_t *const key = cache_row(a, a.keys, position + c, kv_head);
            float dot = 0.0f;
            for (int64_t i = lane; i < a.key_dim; i += 32) dot = fmaf(q[i], cache_value(a.keys.dtype, key, i), dot);
            dot = warp_sum(dot);
            if (lane == 0) scores[c] = score_of(a, dot);
        }
        __syncthreads();
        float most = largest;
        for (int c = 0; c < n; c++) most = fmaxf(most, scores[c]);
        const float down = exp2f(largest - most);
        largest = most;
        weight *= down;
#pragma unroll
        for (int i = 0; i < EACH; i++) sums[i] *= down;
        for (int c = 0; c < n; c++) {
            const uint8_t *const value = cache_row(a, a.values, position + c, kv_head);
            const float one = exp2f(scores[c] - most);
            weight += one;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (threadIdx.x + i * THREADS < a.value_dim)
                    sums[i] = fmaf(one, cache_value(a.values.dtype, value, threadIdx.x + i * THREADS), sums[i]);
        }
        __syncthreads();
    }
    float factor;
    weight = with_sink(a, head, largest, weight, &factor);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (threadIdx.x + i * THREADS < a.value_dim)
            a.out[(int64_t)blockIdx.x * a.value_dim + threadIdx.x + i * THREADS] = sums[i] * factor / weight;
}

static bool is_readable(apr_dtype dtype)
{
    return dtype == APR_F16 || dtype == APR_F32 || dtype == APR_BF16 || dtype == APR_Q8_0 || dtype == APR_F8_E4M3;
}

cudaError_t apr_cuda_attend(const apr_attend_args *args, cudaStream_t stream)
{
    if (args->n_tokens == 0) return cudaSuccess;
    if (args->n_kv_heads < 1 || args->n_heads % args->n_kv_heads != 0 || args->key_dim < 1 || args->value_dim < 1 ||
        args->value_dim > MAX_DIM)
        return cudaErrorInvalidValue;
    const cudaError_t error = apr_cuda_attend_tiles(args, stream);
    if (error != cudaErrorNotSupported) return error;
    if (!is_readable(args->keys.dtype) || !is_readable(args->values.dtype)) return cudaErrorNotSupported;
    k_rows<<<(unsigned)(args->n_tokens * args->n_heads), THREADS, 0, stream>>>(*args);
    return cudaGetLastError();
}
