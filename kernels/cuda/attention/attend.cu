/* attend.cu - attention: chooses the kernel. Its own kernel takes one row of queries at a time, for any cache and values of up to 1024
 * numbers. */
#include "kernels/cuda/attention/attend.cuh"
#include "kernels/cuda/attention/cache_value.cuh"
#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/gemv/decode_gemv.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, CELLS = 32, MAX_DIM = 1024, ENOUGH_BLOCKS = 528 };

static __device__ const uint8_t *cache_row(const apr_attend_args &a, const apr_cache &cache, int64_t position, int64_t kv_head)
{
    return cache.data + (apr_attend_cell(&a, &cache, position) * a.n_kv_heads + kv_head) * cache.row_bytes;
}

/* A block's state of its rows: each row's running maximum, the sum of weights, the thread's columns of the sum of values. */
template <int ROWS, int EACH> struct rows_state {
    float sums[ROWS][EACH], largest[ROWS], weight[ROWS];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            largest[r] = ATTEND_LOWEST;
            weight[r] = 0.0f;
#pragma unroll
            for (int i = 0; i < EACH; i++) sums[r][i] = 0.0f;
        }
    }

    /* Rescales the sums to the new maximum. */
    __device__ __forceinline__ void rescale(const float (&scores)[ROWS][CELLS], int n)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float most = largest[r];
            for (int c = 0; c < n; c++) most = fmaxf(most, scores[r][c]);
            const float down = exp2f(largest[r] - most);
            largest[r] = most;
            weight[r] *= down;
#pragma unroll
            for (int i = 0; i < EACH; i++) sums[r][i] *= down;
        }
    }

    __device__ __forceinline__ void add_value(const apr_attend_args &a, const uint8_t *value, const float (&scores)[ROWS][CELLS], int c)
    {
        float one[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) weight[r] += one[r] = exp2f(scores[r][c] - largest[r]);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64_t column = threadIdx.x + i * THREADS;
            if (column >= a.value_dim) continue;
            const float v = cache_value(a.values.dtype, value, column);
#pragma unroll
            for (int r = 0; r < ROWS; r++) sums[r][i] = fmaf(one[r], v, sums[r][i]);
        }
    }

    __device__ __forceinline__ void write(const apr_attend_args &a, const attend_parts &parts, int64_t first_row)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int64_t row = first_row + r, at = parts.sums != NULL ? blockIdx.y * a.n_tokens * a.n_heads + row : row;
            float *const out = (parts.sums != NULL ? parts.sums : a.out) + at * a.value_dim;
            float factor = 1.0f;
            if (parts.sums == NULL) { /* a single part writes the output */
                const float divisor = with_sink(a, (int)row, largest[r], weight[r], &factor);
                factor /= divisor;
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (threadIdx.x + i * THREADS < a.value_dim) out[threadIdx.x + i * THREADS] = sums[r][i] * factor;
            if (parts.sums == NULL || threadIdx.x > 0) continue;
            parts.largest[at] = largest[r];
            parts.weight[at] = weight[r];
        }
    }
};

/* A warp computes the scores of all rows with one key, which is read once. */
template <int ROWS>
static __device__ __forceinline__ void score_key(const apr_attend_args &a, const float *queries, const uint8_t *key,
                                                 float (&scores)[ROWS][CELLS], int c)
{
    const int lane = threadIdx.x % 32;
    float dots[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) dots[r] = 0.0f;
    for (int64_t i = lane; i < a.key_dim; i += 32) {
        const float k = cache_value(a.keys.dtype, key, i);
#pragma unroll
        for (int r = 0; r < ROWS; r++) dots[r] = fmaf(queries[r * a.key_dim + i], k, dots[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float dot = warp_sum(dots[r]);
        if (lane == 0) scores[r][c] = score_of(a, dot);
    }
}

/* Rows of queries of one token that share a key/value head, and a part of the context (blockIdx.y): 32 scores of each row at a time, by the
 * warps in turn, then the thread's columns of the sums. Each read of the cache serves all ROWS. */
template <int ROWS, int EACH>
static __device__ __forceinline__ void rows_of_a_token(const apr_attend_args &a, const attend_parts &parts, int64_t first_row)
{
    extern __shared__ float queries[]; /* [ROWS, key_dim] */
    __shared__ float scores[ROWS][CELLS];
    const int64_t token = first_row / a.n_heads, kv_head = first_row % a.n_heads / (a.n_heads / a.n_kv_heads);
    const int position_0 = own_position(a), own = position_0 + (int)token, seen = first_seen(a, own), n_seen = own - seen + 1;
    const attend_shares shares = share_context<CELLS>(a, position_0, parts);
    const int64_t share = (int64_t)shares.each * CELLS, from = seen + blockIdx.y * share;
    const int64_t end = seen + n_seen < from + share ? seen + n_seen : from + share;
    rows_state<ROWS, EACH> s;
    if ((int)blockIdx.y >= shares.n_used) return;

    s.clear();
    for (int64_t i = threadIdx.x; i < ROWS * a.key_dim; i += THREADS) queries[i] = a.q[first_row * a.key_dim + i];
    __syncthreads();
    for (int64_t position = from; position < end; position += CELLS) {
        const int n = end - position < CELLS ? (int)(end - position) : CELLS;
        for (int c = threadIdx.x / 32; c < n; c += WARPS) score_key(a, queries, cache_row(a, a.keys, position + c, kv_head), scores, c);
        __syncthreads();
        s.rescale(scores, n);
        for (int c = 0; c < n; c++) s.add_value(a, cache_row(a, a.values, position + c, kv_head), scores, c);
        __syncthreads();
    }
    s.write(a, parts, first_row);
}

template <int ROWS, int EACH>
static __global__ void __launch_bounds__(THREADS, 4) /* up to 128 registers: without the 4 the compiler uses 64 and spills a few */
    k_rows(const __grid_constant__ apr_attend_args a, const __grid_constant__ attend_parts parts)
{
    rows_of_a_token<ROWS, EACH>(a, parts, (int64_t)blockIdx.x * ROWS);
}

/* A sequence per token, each token by itself, with the whole context in one part. */
template <int ROWS, int EACH>
static __global__ void __launch_bounds__(THREADS, 4) k_rows_per_sequence(const __grid_constant__ apr_attend_args all)
{
    const int64_t first_row = (int64_t)blockIdx.x * ROWS, token = first_row / all.n_heads;
    const apr_attend_args a = args_of_token(all, token);
    const attend_parts parts = {NULL, NULL, NULL, NULL, 1, 0, NULL};
    rows_of_a_token<ROWS, EACH>(a, parts, first_row - token * all.n_heads);
}

/* Chosen positions: each token by itself, too. */
template <int ROWS, int EACH>
static __global__ void __launch_bounds__(THREADS, 3) k_rows_chosen(const __grid_constant__ apr_attend_args all)
{
    const int64_t first_row = (int64_t)blockIdx.x * ROWS, token = first_row / all.n_heads;
    apr_attend_args a = apr_attend_chosen(&all, token, position_of_token(all.position, all.position_at, all.per_sequence, token));
    const attend_parts parts = {NULL, NULL, NULL, NULL, 1, 0, NULL};
    a.position_at = NULL;
    if (all.per_sequence) {
        a.keys = cache_of_token(all.keys, token);
        a.values = cache_of_token(all.values, token);
    }
    rows_of_a_token<ROWS, EACH>(a, parts, first_row - token * all.n_heads);
}

template <int ROWS, int EACH> static cudaError_t start_rows(const apr_attend_args *a, cudaStream_t stream)
{
    if (a->chosen != NULL) {
        const size_t n_shared = (size_t)(ROWS * a->key_dim) * sizeof(float);
        k_rows_chosen<ROWS, EACH><<<(unsigned)(a->n_tokens * a->n_heads / ROWS), THREADS, n_shared, stream>>>(*a);
        return cudaGetLastError();
    }
    if (a->per_sequence) {
        const size_t n_shared = (size_t)(ROWS * a->key_dim) * sizeof(float);
        k_rows_per_sequence<ROWS, EACH><<<(unsigned)(a->n_tokens * a->n_heads / ROWS), THREADS, n_shared, stream>>>(*a);
        return cudaGetLastError();
    }
    const int64_t n_blocks = a->n_tokens * a->n_heads / ROWS;
    const attend_parts parts = apr_cuda_cut_context(a, n_blocks, ENOUGH_BLOCKS, CELLS, 1);
    const size_t n_bytes = (size_t)(ROWS * a->key_dim) * sizeof(float);
    k_rows<ROWS, EACH><<<dim3((unsigned)n_blocks, (unsigned)parts.n_parts), THREADS, n_bytes, stream>>>(*a, parts);
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess && parts.sums != NULL ? apr_cuda_combine_parts(a, &parts, CELLS, stream) : error;
}

template <int EACH> static cudaError_t start_width(const apr_attend_args *a, cudaStream_t stream)
{
    const int64_t group = a->n_heads / a->n_kv_heads;
    if (group % 4 == 0) return start_rows<4, EACH>(a, stream);
    return group % 2 == 0 ? start_rows<2, EACH>(a, stream) : start_rows<1, EACH>(a, stream);
}

cudaError_t apr_cuda_attend_gpu(attend_card *card)
{
    int device, most_bytes = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&card->n_sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    card->most_bytes = most_bytes - 2048;
    card->is_75 = apr_cuda_code_major() < 8;
    card->has_clusters = apr_cuda_code_major() >= 9;
    return error;
}

static bool is_readable(apr_dtype dtype)
{
    return dtype == APR_F16 || dtype == APR_F32 || dtype == APR_BF16 || dtype == APR_Q8_0 || dtype == APR_F8_E4M3;
}

cudaError_t apr_cuda_attend_rows(const apr_attend_args *args, cudaStream_t stream)
{
    if (!is_readable(args->keys.dtype) || !is_readable(args->values.dtype)) return cudaErrorNotSupported;
    if (args->value_dim <= 2 * THREADS) return start_width<2>(args, stream);
    return args->value_dim <= 4 * THREADS ? start_width<4>(args, stream) : start_width<MAX_DIM / THREADS>(args, stream);
}

/* Whether there are kernels for the shape; they count positions in 32 bits. */
static bool is_possible(const apr_attend_args *args)
{
    if (args->n_kv_heads < 1 || args->n_heads % args->n_kv_heads != 0 || args->key_dim < 1 || args->value_dim < 1 ||
        args->value_dim > MAX_DIM || args->key_dim > MAX_DIM)
        return false;
    return args->keys.n_cells <= INT32_MAX && (args->position_at != NULL || args->position <= INT32_MAX - args->n_tokens);
}

/* --- pages --- */

/* Copies page blockIdx.y of keys (blockIdx.z 0) or of values (1) to its position, 16 bytes per thread. */
static __global__ void __launch_bounds__(THREADS)
    k_order_pages(const __grid_constant__ apr_attend_args a, uint8_t *to_values, int64_t n_key_pieces, int64_t n_value_pieces)
{
    const apr_cache &cache = blockIdx.z ? a.values : a.keys;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = blockIdx.z ? n_value_pieces : n_key_pieces;
    if (at >= n) return;
    const uint4 *const from = (const uint4 *)cache.data + cache.pages[blockIdx.y] * n + at;
    ((uint4 *)(blockIdx.z ? to_values : a.gathered))[blockIdx.y * n + at] = __ldg(from);
}

/* Copies one sequence's pages in order into args->gathered; *own reads them there. */
static cudaError_t put_in_order(const apr_attend_args *args, apr_attend_args *own, cudaStream_t stream)
{
    const int64_t n_positions = args->position + args->n_tokens, n_pages = (n_positions + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS;
    const int64_t key_bytes = args->n_kv_heads * args->keys.row_bytes, value_bytes = args->n_kv_heads * args->values.row_bytes;
    const int64_t keys = key_bytes * APR_PAGE_CELLS / 16, values = value_bytes * APR_PAGE_CELLS / 16, most = keys > values ? keys : values;
    const bool has_values = args->values.data != args->keys.data; /* else values are the first numbers of the keys */

    if (args->position_at != NULL || args->gathered == NULL || n_positions > args->n_gathered || n_pages > 65535)
        return cudaErrorInvalidValue;
    *own = *args;
    own->keys.data = args->gathered;
    own->values.data = has_values ? args->gathered + args->n_gathered * key_bytes : args->gathered;
    own->keys.pages = own->values.pages = NULL;
    own->keys.n_cells = own->values.n_cells = args->n_gathered;
    k_order_pages<<<dim3(blocks_of(most, THREADS), (unsigned)n_pages, has_values ? 2 : 1), THREADS, 0, stream>>>(*args, own->values.data,
                                                                                                                 keys, values);
    return cudaGetLastError();
}

/* Whether all tokens attend to all positions, also those of a recorded graph for which it is run again. Of sequences each must have the
 * numbers that it has alone, so the others' positions do not decide. */
static bool are_all_chosen(const apr_attend_args *args)
{
    if (args->per_sequence) return false;
    return (args->position_at != NULL ? apr_attend_split_end(args->position) : args->position + args->n_tokens) <= args->n_chosen;
}

/* Uses the first kernel that handles it. `careful`: queries and weights of many tokens need the accuracy of float32. */
static cudaError_t attend_with(const apr_attend_args *args, bool careful, cudaStream_t stream)
{
    if (args->n_tokens == 0) return cudaSuccess;
    if (!is_possible(args) || (args->per_sequence && args->position_at == NULL)) return cudaErrorInvalidValue;
    if (args->chosen != NULL) {
        apr_attend_args all = *args;
        all.chosen = NULL;
        return are_all_chosen(args) ? attend_with(&all, careful, stream) : apr_cuda_attend_rows(args, stream);
    }
    if (args->per_sequence) {
        cudaError_t error = apr_cuda_attend_per_sequence(args, stream);
        if (error == cudaErrorNotSupported) error = apr_cuda_attend_latent(args, careful, stream);
        return error != cudaErrorNotSupported ? error : apr_cuda_attend_rows(args, stream);
    }
    if (args->keys.pages != NULL) {
        apr_attend_args own;
        const cudaError_t gathered = put_in_order(args, &own, stream);
        return gathered == cudaSuccess ? attend_with(&own, careful, stream) : gathered;
    }
    cudaError_t error = apr_cuda_attend_decode(args, NULL, stream);
    if (error == cudaErrorNotSupported) error = apr_cuda_attend_prompt(args, careful, stream);
    if (error == cudaErrorNotSupported) error = apr_cuda_attend_latent(args, careful, stream);
    if (error == cudaErrorNotSupported) error = apr_cuda_attend_tiles(args, stream);
    return error != cudaErrorNotSupported ? error : apr_cuda_attend_rows(args, stream);
}

cudaError_t apr_cuda_attend_to_i16(const apr_attend_args *args, uint8_t *activations_out, cudaStream_t stream)
{
    if (args->n_tokens != 1 || !is_possible(args)) return cudaErrorInvalidValue;
    return apr_cuda_attend_decode(args, activations_out, stream);
}

cudaError_t apr_cuda_qkv_and_attend(const apr_qkv_epilogue_args *qkv, const apr_attend_args *args, uint8_t *activations_out,
                                    cudaStream_t stream)
{
    if (args->n_tokens != 1 || !is_possible(args) || !apr_cuda_has_qkv_epilogue(qkv)) return cudaErrorInvalidValue;
    return apr_cuda_qkv_and_decode(qkv, args, activations_out, stream);
}

cudaError_t apr_cuda_attend(const apr_attend_args *args, cudaStream_t stream)
{
    return attend_with(args, args->n_tokens <= APR_CUDA_CAREFUL_TOKENS, stream);
}

cudaError_t apr_cuda_attend_exact(const apr_attend_args *args, cudaStream_t stream) { return attend_with(args, true, stream); }
