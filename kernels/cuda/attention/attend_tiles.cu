/* attend_tiles.cu - attention over tiles of the cache without tensor cores, for heads of up to 256 numbers.
 *
 * A thread block has some rows of queries that share a key/value head (a row is one head of one token), and goes over the positions they
 * see in tiles. Its 128 threads are 8 x 16: thread (y, x) has the scores of rows y * ROW_EACH ... with cells x, x + 16, ..., and the sums
 * of those rows in columns 4 * x, 64 + 4 * x, ... Keys, then values of a tile are in the same shared memory; the next ones are loaded into
 * registers meanwhile. Each row keeps its running maximum, the sum of weights and the weighted sum of values; when the maximum grows, the
 * sums are rescaled. */
#include "kernels/cuda/attention/attend.cuh"
#include "kernels/cuda/codecs/dtype.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { THREADS = 128, ENOUGH_BLOCKS = 528 };

template <apr_dtype KV, int DIM, int ROWS, int CELLS> struct tiles {
    static constexpr int EACH = piece<KV>::RUNS * 4, PIECES_A_ROW = DIM / EACH, PIECES = CELLS * PIECES_A_ROW / THREADS;
    static constexpr int ROW_EACH = ROWS / 8, CELL_EACH = CELLS / 16, FOURS = DIM / 64, STRIDE = DIM + 4, WEIGHT_STRIDE = CELLS + 4;

    /* Loads this thread's share of the cells from `position` on; cells after `last` are not read. */
    static __device__ __forceinline__ void fetch(const apr_attend_args &a, const apr_cache &cache, int64_t kv_head, int64_t position,
                                                 int64_t last, piece<KV> (&share)[PIECES])
    {
        const int64_t start = position % cache.n_cells;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int at = threadIdx.x + i * THREADS, cell = at / PIECES_A_ROW, piece_at = at % PIECES_A_ROW;
            if (position + cell > last || piece_at * EACH >= a.value_dim) continue;
            int64_t where = start + cell;
            while (where >= cache.n_cells) where -= cache.n_cells;
            share[i].load(cache.data + (where * a.n_kv_heads + kv_head) * cache.row_bytes + piece_at / piece<KV>::LANES * piece<KV>::BYTES,
                          piece_at % piece<KV>::LANES);
        }
    }

    /* Decodes it into shared memory; what was not read becomes zeros. */
    static __device__ __forceinline__ void put(const apr_attend_args &a, int64_t position, int64_t last, const piece<KV> (&share)[PIECES],
                                               float *tile)
    {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int at = threadIdx.x + i * THREADS, cell = at / PIECES_A_ROW, piece_at = at % PIECES_A_ROW;
            const bool there = position + cell <= last && piece_at * EACH < a.value_dim;
#pragma unroll
            for (int run = 0; run < piece<KV>::RUNS; run++) {
                float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (there) {
                    const float scale = share[i].scale(0);
                    v = share[i].codes(run);
                    v = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
                }
                *(float4 *)(tile + cell * STRIDE + piece_at * EACH + 4 * run) = v;
            }
        }
    }

    /* dots[i][j] of the thread's rows and cells. */
    static __device__ __forceinline__ void score(const float *queries, const float *keys, float (&dots)[ROW_EACH][CELL_EACH])
    {
        const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < ROW_EACH; i++)
#pragma unroll
            for (int j = 0; j < CELL_EACH; j++) dots[i][j] = 0.0f;
#pragma unroll 4
        for (int d = 0; d < DIM; d += 4) {
            float4 k[CELL_EACH];
#pragma unroll
            for (int j = 0; j < CELL_EACH; j++) k[j] = *(const float4 *)(keys + (x + 16 * j) * STRIDE + d);
#pragma unroll
            for (int i = 0; i < ROW_EACH; i++) {
                const float4 q = *(const float4 *)(queries + (y * ROW_EACH + i) * STRIDE + d);
#pragma unroll
                for (int j = 0; j < CELL_EACH; j++)
                    dots[i][j] = fmaf(q.w, k[j].w, fmaf(q.z, k[j].z, fmaf(q.y, k[j].y, fmaf(q.x, k[j].x, dots[i][j]))));
            }
        }
    }

    /* Adds weights * values. */
    static __device__ __forceinline__ void add_values(const float *weights, const float *values, float4 (&sums)[ROW_EACH][FOURS])
    {
        const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll 2
        for (int c = 0; c < CELLS; c += 4) {
            float4 w[ROW_EACH];
#pragma unroll
            for (int i = 0; i < ROW_EACH; i++) w[i] = *(const float4 *)(weights + (y * ROW_EACH + i) * WEIGHT_STRIDE + c);
#pragma unroll
            for (int k = 0; k < FOURS; k++)
#pragma unroll
                for (int one = 0; one < 4; one++) {
                    const float4 v = *(const float4 *)(values + (c + one) * STRIDE + 64 * k + 4 * x);
#pragma unroll
                    for (int i = 0; i < ROW_EACH; i++) {
                        const float weight = one == 0 ? w[i].x : one == 1 ? w[i].y : one == 2 ? w[i].z : w[i].w;
                        sums[i][k].x = fmaf(weight, v.x, sums[i][k].x);
                        sums[i][k].y = fmaf(weight, v.y, sums[i][k].y);
                        sums[i][k].z = fmaf(weight, v.z, sums[i][k].z);
                        sums[i][k].w = fmaf(weight, v.w, sums[i][k].w);
                    }
                }
        }
    }
};

static __device__ __forceinline__ float4 times(float4 v, float f) { return make_float4(v.x * f, v.y * f, v.z * f, v.w * f); }

/* A thread's state of its rows; 16 threads have the same maximum of a row, and each a part of its sum of weights. */
template <int ROW_EACH, int FOURS> struct row_state {
    float largest[ROW_EACH], weight[ROW_EACH];
    float4 sums[ROW_EACH][FOURS];
};

/* Turns scores into weights: updates the maximum, rescales the sums, and stores the weights in shared memory. `first` and `last` are the
 * positions that each row sees; the tile begins at `position`. */
template <int ROW_EACH, int CELL_EACH, int FOURS, int WEIGHT_STRIDE>
static __device__ __forceinline__ void scores_to_weights(float (&dots)[ROW_EACH][CELL_EACH], const int64_t (&first)[ROW_EACH],
                                                         const int64_t (&last)[ROW_EACH], int64_t position, const apr_attend_args &a,
                                                         float *weights, row_state<ROW_EACH, FOURS> &s)
{
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < ROW_EACH; i++) {
        float max_score = ATTEND_LOWEST;
#pragma unroll
        for (int j = 0; j < CELL_EACH; j++) {
            const int64_t p = position + x + 16 * j;
            dots[i][j] = p >= first[i] && p <= last[i] ? score_of(a, dots[i][j]) : -INFINITY;
            max_score = fmaxf(max_score, dots[i][j]);
        }
        max_score = fmaxf(s.largest[i], half_warp_max(max_score));
        const float down = exp2f(s.largest[i] - max_score);
        s.largest[i] = max_score;
        s.weight[i] *= down;
#pragma unroll
        for (int k = 0; k < FOURS; k++) s.sums[i][k] = times(s.sums[i][k], down);
#pragma unroll
        for (int j = 0; j < CELL_EACH; j++) {
            const float weight = exp2f(dots[i][j] - max_score);
            s.weight[i] += weight;
            weights[(y * ROW_EACH + i) * WEIGHT_STRIDE + x + 16 * j] = weight;
        }
    }
}

/* Copies a tile's rows of queries into shared memory; missing ones become zeros. */
template <int DIM, int ROWS>
static __device__ __forceinline__ void put_queries(const apr_attend_args &a, int64_t kv_head, int64_t begin, float *queries)
{
    const int64_t group = a.n_heads / a.n_kv_heads, n_rows = a.n_tokens * group;
    for (int at = threadIdx.x; at < ROWS * (DIM / 4); at += THREADS) {
        const int64_t row = begin + at / (DIM / 4), column = at % (DIM / 4) * 4;
        float4 q = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < n_rows && column < a.value_dim)
            q = __ldg((const float4 *)(a.q + (row / group * a.n_heads + kv_head * group + row % group) * a.value_dim + column));
        *(float4 *)(queries + at / (DIM / 4) * (DIM + 4) + column) = q;
    }
}

/* blockIdx.x: a tile of rows (the last ones, which see most, come first) and a key/value head; blockIdx.y: a part of the context. */
template <apr_dtype KV, int DIM, int ROWS, int CELLS>
static __global__ void __launch_bounds__(THREADS, 1)
    k_tiles(const __grid_constant__ apr_attend_args a, const __grid_constant__ attend_parts parts)
{
    typedef tiles<KV, DIM, ROWS, CELLS> T;
    __shared__ __align__(16) float queries[ROWS * T::STRIDE];
    __shared__ __align__(16) float tile[CELLS * T::STRIDE];
    __shared__ __align__(16) float weights[ROWS * T::WEIGHT_STRIDE];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int64_t group = a.n_heads / a.n_kv_heads, n_rows = a.n_tokens * group, kv_head = blockIdx.x % a.n_kv_heads;
    const int64_t begin = ((n_rows + ROWS - 1) / ROWS - 1 - blockIdx.x / a.n_kv_heads) * ROWS,
                  end = begin + ROWS < n_rows ? begin + ROWS : n_rows;
    const int position_0 = own_position(a);
    const attend_shares shares = share_context<CELLS>(a, position_0, parts);
    const int64_t from = first_seen(a, (int)(position_0 + begin / group)), to = position_0 + (end - 1) / group;
    const int64_t n_tiles = (to - from) / CELLS + 1;
    const int64_t tile_begin = (int64_t)blockIdx.y * shares.each,
                  tile_end = tile_begin + shares.each < n_tiles ? tile_begin + shares.each : n_tiles;
    if ((int)blockIdx.y >= shares.n_used) return;

    put_queries<DIM, ROWS>(a, kv_head, begin, queries);
    row_state<T::ROW_EACH, T::FOURS> s;
    int64_t first[T::ROW_EACH], last[T::ROW_EACH];
#pragma unroll
    for (int i = 0; i < T::ROW_EACH; i++) {
        const int64_t row = begin + y * T::ROW_EACH + i, token = row / group;
        first[i] = first_seen(a, (int)(position_0 + token));
        last[i] = row < n_rows ? position_0 + token : -1;
        s.largest[i] = ATTEND_LOWEST;
        s.weight[i] = 0.0f;
#pragma unroll
        for (int k = 0; k < T::FOURS; k++) s.sums[i][k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    piece<KV> next[T::PIECES];
    if (tile_begin < tile_end) T::fetch(a, a.keys, kv_head, from + tile_begin * CELLS, to, next);
    for (int64_t i = tile_begin; i < tile_end; i++) {
        const int64_t position = from + i * CELLS;
        float dots[T::ROW_EACH][T::CELL_EACH];
        __syncthreads(); /* the values of the previous tile have been used */
        T::put(a, position, to, next, tile);
        __syncthreads();
        T::fetch(a, a.values, kv_head, position, to, next);
        T::score(queries, tile, dots);
        scores_to_weights<T::ROW_EACH, T::CELL_EACH, T::FOURS, T::WEIGHT_STRIDE>(dots, first, last, position, a, weights, s);
        __syncthreads();
        T::put(a, position, to, next, tile);
        __syncthreads();
        if (i + 1 < tile_end) T::fetch(a, a.keys, kv_head, position + CELLS, to, next);
        T::add_values(weights, tile, s.sums);
    }
#pragma unroll
    for (int i = 0; i < T::ROW_EACH; i++) {
        const int64_t row = begin + y * T::ROW_EACH + i, out_row = row / group * a.n_heads + kv_head * group + row % group;
        const float weight = half_warp_sum(s.weight[i]);
        if (row >= n_rows) continue;
        float factor = 1.0f;
        if (parts.sums == NULL) { /* a single part writes the output */
            const float divisor = with_sink(a, (int)(kv_head * group + row % group), s.largest[i], weight, &factor);
            factor /= divisor;
        }
        const int64_t at = parts.sums != NULL ? blockIdx.y * a.n_tokens * a.n_heads + out_row : out_row;
        float *const out = (parts.sums != NULL ? parts.sums : a.out) + at * a.value_dim;
#pragma unroll
        for (int k = 0; k < T::FOURS; k++)
            if (64 * k + 4 * x < a.value_dim) *(float4 *)(out + 64 * k + 4 * x) = times(s.sums[i][k], factor);
        if (parts.sums != NULL && x == 0) {
            parts.largest[at] = s.largest[i];
            parts.weight[at] = weight;
        }
    }
}

/* A thread block per row combines its parts in order, rescaled to a common maximum. */
template <int TILE_CELLS>
static __global__ void __launch_bounds__(THREADS)
    k_combine(const __grid_constant__ apr_attend_args a, const __grid_constant__ attend_parts parts)
{
    __shared__ float factors[APR_CUDA_ATTEND_SPLITS], weights[APR_CUDA_ATTEND_SPLITS];
    const int64_t n_rows = a.n_tokens * a.n_heads, row = blockIdx.x;
    const int n_parts = share_context<TILE_CELLS>(a, own_position(a), parts).n_used;
    if ((int)threadIdx.x < n_parts) {
        factors[threadIdx.x] = parts.largest[threadIdx.x * n_rows + row];
        weights[threadIdx.x] = parts.weight[threadIdx.x * n_rows + row];
    }
    __syncthreads();
    float max_score = ATTEND_LOWEST, weight = 0.0f;
    for (int i = 0; i < n_parts; i++) max_score = fmaxf(max_score, factors[i]);
    __syncthreads();
    if ((int)threadIdx.x < n_parts) factors[threadIdx.x] = exp2f(factors[threadIdx.x] - max_score);
    __syncthreads();
    for (int i = 0; i < n_parts; i++) weight = fmaf(factors[i], weights[i], weight);
    float factor;
    weight = with_sink(a, (int)row, max_score, weight, &factor);
    for (int64_t d = threadIdx.x; d < a.value_dim; d += THREADS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int i = 0; i < n_parts; i++) sum = fmaf(factors[i], __ldg(parts.sums + (i * n_rows + row) * a.value_dim + d), sum);
        a.out[row * a.value_dim + d] = sum * factor / weight;
    }
}

cudaError_t apr_cuda_combine_parts(const apr_attend_args *a, const attend_parts *parts, int tile_cells, cudaStream_t stream)
{
    const unsigned n_rows = (unsigned)(a->n_tokens * a->n_heads);
    switch (tile_cells) {
    case 16: k_combine<16><<<n_rows, THREADS, 0, stream>>>(*a, *parts); break;
    case 32: k_combine<32><<<n_rows, THREADS, 0, stream>>>(*a, *parts); break;
    case 64: k_combine<64><<<n_rows, THREADS, 0, stream>>>(*a, *parts); break;
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

int64_t apr_cuda_longest_context(const apr_attend_args *a)
{
    const int64_t end = apr_attend_split_end(a->position);
    int64_t n = a->keys.n_cells;
    if (a->n_tokens == 1 && n > end) n = end;
    if (a->window > 0 && n > a->window + a->n_tokens) n = a->window + a->n_tokens;
    return a->chunk > 0 && n > a->chunk + a->n_tokens ? a->chunk + a->n_tokens : n;
}

attend_parts apr_cuda_cut_context(const apr_attend_args *a, int64_t n_blocks, int64_t enough_blocks, int tile_cells, int least_tiles)
{
    const int64_t n_rows = a->n_tokens * a->n_heads, floats = a->work.data != NULL ? (int64_t)a->work.slice : 0;
    const int64_t part_cells = tile_cells * least_tiles, n_most = (apr_cuda_longest_context(a) + part_cells - 1) / part_cells;
    int64_t n = enough_blocks / n_blocks;
    attend_parts parts = {NULL, NULL, NULL, NULL, 1, 0, NULL};

    if (a->n_tokens > APR_CUDA_FEW_TOKENS) return parts;
    if (n > APR_CUDA_ATTEND_SPLITS) n = APR_CUDA_ATTEND_SPLITS;
    if (n > n_most) n = n_most;
    if (n > floats / (n_rows * (a->value_dim + 4))) n = floats / (n_rows * (a->value_dim + 4));
    if (n % 2 != 0 && n * n_rows * a->value_dim % 2 != 0) n--; /* even, since 8-byte flags follow these floats */
    if (n < 2) return parts;
    attend_set_parts(&parts, (int)n);
    parts.sums = a->work.data;
    parts.largest = parts.sums + n * n_rows * a->value_dim;
    parts.weight = parts.largest + n * n_rows;
    parts.done = (uint64_t *)(parts.weight + n * n_rows);
    return parts;
}

template <apr_dtype KV, int DIM, int ROWS, int CELLS> static cudaError_t start_tiles(const apr_attend_args *a, cudaStream_t stream)
{
    const int64_t row_tiles = (a->n_tokens * (a->n_heads / a->n_kv_heads) + ROWS - 1) / ROWS, n_blocks = row_tiles * a->n_kv_heads;
    const attend_parts parts = apr_cuda_cut_context(a, n_blocks, ENOUGH_BLOCKS, CELLS, 1);
    k_tiles<KV, DIM, ROWS, CELLS><<<dim3((unsigned)n_blocks, (unsigned)parts.n_parts), THREADS, 0, stream>>>(*a, parts);
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess && parts.sums != NULL ? apr_cuda_combine_parts(a, &parts, CELLS, stream) : error;
}

template <apr_dtype KV> static cudaError_t start_cache(const apr_attend_args *a, cudaStream_t stream)
{
    const bool few = a->n_tokens * (a->n_heads / a->n_kv_heads) <= 8;
    if (a->value_dim <= 64) return few ? start_tiles<KV, 64, 8, 64>(a, stream) : start_tiles<KV, 64, 32, 64>(a, stream);
    if (a->value_dim <= 128) return few ? start_tiles<KV, 128, 8, 32>(a, stream) : start_tiles<KV, 128, 32, 32>(a, stream);
    return few ? start_tiles<KV, 256, 8, 16>(a, stream) : start_tiles<KV, 256, 16, 16>(a, stream);
}

cudaError_t apr_cuda_attend_tiles(const apr_attend_args *a, cudaStream_t stream)
{
    const apr_dtype dtype = a->keys.dtype;
    const int64_t needs = dtype == APR_Q8_0 ? 2 : dtype == APR_F8_E4M3 ? 8 : 16;
    if (a->key_dim != a->value_dim || dtype != a->values.dtype || a->key_dim > 256 || a->key_dim % (dtype == APR_Q8_0 ? 32 : 8) != 0)
        return cudaErrorNotSupported;
    if (!attend_is_aligned(a, needs)) return cudaErrorNotSupported;
    switch ((int)dtype) {
    case APR_F16: return start_cache<APR_F16>(a, stream);
    case APR_BF16: return start_cache<APR_BF16>(a, stream);
    case APR_F32: return start_cache<APR_F32>(a, stream);
    case APR_Q8_0: return start_cache<APR_Q8_0>(a, stream);
    case APR_F8_E4M3: return start_cache<APR_F8_E4M3>(a, stream);
    default: return cudaErrorNotSupported;
    }
}
