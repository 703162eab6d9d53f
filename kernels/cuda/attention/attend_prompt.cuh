/* attend_prompt.cuh - attention of many tokens on tensor cores, for caches of all types whose numbers fit FP16.
 *
 * A block of four warps has 64 or 128 rows that share a key/value head, so that its keys and values serve a whole group of heads. It goes
 * over the visible cells, 64 at a time. Queries are in shared memory as FP16, scaled by a power of two per warp. Keys of the next cells
 * arrive while values are added, values while scores are computed. A warp has 16 or 32 rows. The scores leave the tensor cores in the
 * layout of operand a of the next product, the weights; values are transposed by their load.
 *
 * Careful: queries and weights are two FP16 parts each, and sums of values are added in float32 tile by tile, outside the tensor cores,
 * which truncate. */
#ifndef APR_KERNELS_CUDA_ATTEND_PROMPT_CUH
#define APR_KERNELS_CUDA_ATTEND_PROMPT_CUH

#include "kernels/cuda/attention/attend.cuh"
#include "kernels/cuda/codecs/dtype.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS };

/* A block's work; positions count from the first one that its rows see. */
typedef struct prompt_view {
    int position, from; /* of the first token; position 0 */
    int kv_head, first_row, n_rows, group;
    int n_seen, begin, end;         /* number of positions; tiles of this part */
    int all_see_from, all_see_last; /* positions that every row sees */
} prompt_view;

/* blockIdx.x: rows (the last ones, which see most, come first) and a key/value head; y: a part of the context. */
template <int ROWS, int CELLS> static __device__ __forceinline__ prompt_view view_of(const apr_attend_args &a, const attend_parts &parts)
{
    prompt_view v;
    v.position = own_position(a);
    v.group = group_of(a);
    v.n_rows = (int)a.n_tokens * v.group;
    v.kv_head = (int)(blockIdx.x % (uint32_t)a.n_kv_heads);
    v.first_row = ((v.n_rows + ROWS - 1) / ROWS - 1 - (int)(blockIdx.x / (uint32_t)a.n_kv_heads)) * ROWS;
    const int last_row = v.first_row + ROWS < v.n_rows ? v.first_row + ROWS - 1 : v.n_rows - 1;
    const int first = v.position + v.first_row / v.group, last = v.position + last_row / v.group;
    v.from = first_seen(a, first);
    v.n_seen = last - v.from + 1;
    v.all_see_from = first_seen(a, last) - v.from;
    v.all_see_last = first - v.from;
    const int n_tiles = (v.n_seen + CELLS - 1) / CELLS;
    v.begin = 0, v.end = n_tiles;
    if (parts.n_parts > 1) {
        const int each = share_context<CELLS>(a, v.position, parts).each, begin = blockIdx.y * each;
        v.begin = begin < n_tiles ? begin : n_tiles;
        v.end = begin + each < n_tiles ? begin + each : n_tiles;
    }
    return v;
}

/* A row of a block: its index among all rows (-1: none), and the first and last position that it sees. */
typedef struct prompt_row {
    int which, low, high;
} prompt_row;

static __device__ __forceinline__ void put_row(const apr_attend_args &a, const prompt_view &v, int i, prompt_row *rows)
{
    const int row = v.first_row + i, token = row / v.group;
    const int own = v.position + token;
    const bool there = row < v.n_rows;
    rows[i].which = there ? token * (int)a.n_heads + v.kv_head * v.group + row % v.group : -1;
    rows[i].low = first_seen(a, own) - v.from;
    rows[i].high = there ? own - v.from : -1;
}

/* Copies CELLS rows of a cache into shared memory; rows beyond the visible ones, and columns that the cache does not have, become zeros. */
template <int DIM, int CELLS>
static __device__ __forceinline__ void copy_tile(const apr_attend_args &a, const apr_cache &cache, int width, const prompt_view &v,
                                                 int tile, uint8_t *to)
{
    enum { PIECES = DIM / 8, STRIDE = 2 * DIM + 16, ROUNDS = CELLS * PIECES / THREADS };
    static_assert(CELLS * PIECES % THREADS == 0, "all threads have as many pieces");
    const int64_t cell_bytes = a.n_kv_heads * cache.row_bytes;
    const uint32_t n_cells = (uint32_t)cache.n_cells, cell = cell_of(cache, v.from + tile * CELLS);
    const uint8_t *const data = cache.data + v.kv_head * cache.row_bytes;
    if (THREADS % PIECES == 0 && cell + CELLS <= n_cells && (tile + 1) * CELLS <= v.n_seen && width == DIM) { /* no bounds checks needed */
        const int row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
        const uint8_t *from = data + (cell + row) * cell_bytes + 16 * piece;
        uint8_t *const at = to + row * STRIDE + 16 * piece;
#pragma unroll
        for (int i = 0; i < ROUNDS; i++, from += THREADS / PIECES * cell_bytes) copy_16(at + i * (THREADS / PIECES * STRIDE), from, true);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < ROUNDS; i++) {
        const int at = (int)threadIdx.x + i * THREADS, row = at / PIECES, piece = at % PIECES;
        uint32_t where = cell + row;
        while (where >= n_cells) where -= n_cells;
        const bool there = tile * CELLS + row < v.n_seen && 8 * piece < width;
        copy_16(to + row * STRIDE + 16 * piece, there ? data + where * cell_bytes + 16 * piece : cache.data, there);
    }
}

/* The same for a cache of any type: loaded into registers by start(), and decoded into shared memory by finish(). */
template <apr_dtype KV, int DIM, int CELLS> struct tile_loader {
    static constexpr int EACH = piece<KV>::RUNS * 4, A_ROW = DIM / EACH, ROUNDS = CELLS * A_ROW / THREADS, STRIDE = 2 * DIM + 16;
    static_assert(EACH == 8 && CELLS * A_ROW % THREADS == 0, "a piece is 16 bytes of FP16, and all threads have as many");
    piece<KV> share[ROUNDS];

    static __device__ __forceinline__ bool is_there(int width, const prompt_view &v, int tile, int at)
    {
        return tile * CELLS + at / A_ROW < v.n_seen && EACH * (at % A_ROW) < width;
    }

    __device__ __forceinline__ void start(const apr_attend_args &a, const apr_cache &cache, int width, const prompt_view &v, int tile,
                                          uint8_t *)
    {
        const int64_t cell_bytes = a.n_kv_heads * cache.row_bytes;
        const uint32_t n_cells = (uint32_t)cache.n_cells, cell = cell_of(cache, v.from + tile * CELLS);
        const uint8_t *const data = cache.data + v.kv_head * cache.row_bytes;
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            const int at = (int)threadIdx.x + i * THREADS, piece_at = at % A_ROW;
            uint32_t where = cell + at / A_ROW;
            while (where >= n_cells) where -= n_cells;
            if (is_there(width, v, tile, at))
                share[i].load(data + where * cell_bytes + piece_at / piece<KV>::LANES * piece<KV>::BYTES, piece_at % piece<KV>::LANES);
        }
    }

    __device__ __forceinline__ void finish(int width, const prompt_view &v, int tile, uint8_t *to) const
    {
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            const int at = (int)threadIdx.x + i * THREADS;
            uint4 packed = make_uint4(0, 0, 0, 0);
            if (is_there(width, v, tile, at)) {
                const float scale = share[i].scale(0);
                const float4 x = share[i].codes(0), y = share[i].codes(1);
                packed = make_uint4(pack_f16(x.x * scale, x.y * scale), pack_f16(x.z * scale, x.w * scale),
                                    pack_f16(y.x * scale, y.y * scale), pack_f16(y.z * scale, y.w * scale));
            }
            *(uint4 *)(to + at / A_ROW * STRIDE + 16 * (at % A_ROW)) = packed;
        }
    }
};

template <int DIM, int CELLS> struct tile_loader<APR_F16, DIM, CELLS> {
    __device__ __forceinline__ void start(const apr_attend_args &a, const apr_cache &cache, int width, const prompt_view &v, int tile,
                                          uint8_t *to)
    {
        copy_tile<DIM, CELLS>(a, cache, width, v, tile, to);
        end_copies();
    }
    __device__ __forceinline__ void finish(int, const prompt_view &, int, uint8_t *) const { await_copies<0>(); }
};

/* MT: a warp has 16 * MT rows. */
template <int KEY, int VALUE, int MT, int CELLS, bool CAREFUL> struct prompt {
    static constexpr int ROWS = 16 * WARPS * MT, KEY_STRIDE = 2 * KEY + 16, VALUE_STRIDE = 2 * VALUE + 16; /* avoids bank conflicts */
    static constexpr int QUERIES = ROWS * KEY_STRIDE, KEYS = CELLS * KEY_STRIDE, VALUES = CELLS * VALUE_STRIDE;
    static constexpr int TILE = KEYS + VALUES, BYTES = QUERIES * (CAREFUL ? 2 : 1) + TILE;
    static constexpr int CELL_TILES = CELLS / 8, VALUE_TILES = VALUE / 8;
    static constexpr int OWN = 16 * MT, EACH = (KEY + 127) / 128; /* rows of a warp; float4 of a lane for each */

    /* Steps of 16 columns of a key that are unrolled: all of 192 need one register too many, and on 10.x more than a few do. */
#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1100
    static constexpr int STEPS_AT_ONCE = KEY == 192 ? 1 : 2;
#else
    static constexpr int STEPS_AT_ONCE = KEY == 192 ? 6 : KEY / 16;
#endif

    float sums[MT][VALUE_TILES][4];        /* rows g and g + 8 of each 16, columns 8 n + 2 t and 2 t + 1 */
    float max_score[MT][2], weight[MT][2]; /* of these rows; of the weight this thread's share */

    /* Loads N of the warp's rows from `first` on, four columns of each per lane. */
    template <int N>
    static __device__ __forceinline__ void load_queries(const apr_attend_args &a, const prompt_row *rows, int first, float4 (&x)[N][EACH])
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int which = rows[threadIdx.x / 32 * OWN + first + i].which;
            const float *const from = a.q + (int64_t)(which < 0 ? 0 : which) * a.key_dim;
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                const int column = (int)(threadIdx.x % 32) * 4 + 128 * k;
                x[i][k] = which >= 0 && column < a.key_dim ? __ldg((const float4 *)(from + column)) : make_float4(0, 0, 0, 0);
            }
        }
    }

    /* Stores a warp's rows as FP16 with a common power of two: only their largest number matters, since small rows have small scores.
     * Returns its inverse. `remainders`: their rounding errors, if careful. */
    static __device__ __forceinline__ float put_queries(const apr_attend_args &a, const prompt_row *rows, uint8_t *queries,
                                                        uint8_t *remainders)
    {
        constexpr int TOGETHER = 16 / EACH;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float4 x[TOGETHER][EACH];
        float largest = 0.0f;
#pragma unroll 1
        for (int first = 0; first < OWN; first += TOGETHER) {
            load_queries(a, rows, first, x);
#pragma unroll
            for (int i = 0; i < TOGETHER * EACH; i++) {
                const float4 q = x[i / EACH][i % EACH];
                largest = fmaxf(fmaxf(largest, fmaxf(fabsf(q.x), fabsf(q.y))), fmaxf(fabsf(q.z), fabsf(q.w)));
            }
        }
        const float scale = row_scale(warp_max(largest));
#pragma unroll 1
        for (int first = 0; first < OWN; first += TOGETHER) {
            load_queries(a, rows, first, x);
#pragma unroll
            for (int i = 0; i < TOGETHER * EACH; i++) {
                const int column = 4 * lane + 128 * (i % EACH), at = (warp * OWN + first + i / EACH) * KEY_STRIDE + 2 * column;
                if (column >= KEY) continue;
                float4 q = x[i / EACH][i % EACH];
                q = make_float4(q.x * scale, q.y * scale, q.z * scale, q.w * scale);
                const uint2 packed = make_uint2(pack_f16(q.x, q.y), pack_f16(q.z, q.w));
                *(uint2 *)(queries + at) = packed;
                if (CAREFUL)
                    *(uint2 *)(remainders + at) = make_uint2(pack_remainders(q.x, q.y, packed.x), pack_remainders(q.z, q.w, packed.y));
            }
        }
        __syncwarp(); /* a warp reads only its own rows */
        return inverse_power(scale);
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                max_score[m][h] = ATTEND_LOWEST;
                weight[m][h] = 0.0f;
            }
#pragma unroll
            for (int n = 0; n < VALUE_TILES; n++)
#pragma unroll
                for (int k = 0; k < 4; k++) sums[m][n][k] = 0.0f;
        }
    }

    /* dots += queries * keys: a warp's rows with all cells of the tile. */
    static __device__ __forceinline__ void multiply(const uint8_t *queries, const uint8_t *remainders, const uint8_t *keys,
                                                    float (&dots)[MT][CELL_TILES][4])
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int q_at = (warp * MT * 16 + lane % 16) * KEY_STRIDE + lane / 16 * 16;
        const uint8_t *const k_row = keys + (lane / 16 * 8 + lane % 8) * KEY_STRIDE + lane / 8 % 2 * 16;
#pragma unroll(STEPS_AT_ONCE)
        for (int i = 0; i < KEY / 16; i++) {
            uint32_t q[MT][4], rest[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                load_matrices(q[m], queries + q_at + m * 16 * KEY_STRIDE + 32 * i);
                if (CAREFUL) load_matrices(rest[m], remainders + q_at + m * 16 * KEY_STRIDE + 32 * i);
            }
#pragma unroll
            for (int n = 0; n < CELL_TILES; n += 2) {
                uint32_t k[4];
                load_matrices(k, k_row + n * 8 * KEY_STRIDE + 32 * i);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma(dots[m][n], q[m], k[0], k[1]);
                    mma(dots[m][n + 1], q[m], k[2], k[3]);
                    if (!CAREFUL) continue;
                    mma(dots[m][n], rest[m], k[0], k[1]);
                    mma(dots[m][n + 1], rest[m], k[2], k[3]);
                }
            }
        }
    }

    /* Applies the softcap (attend_scale); without one dots stay unchanged. */
    static __device__ __forceinline__ void cap(const apr_attend_args &a, float unscale, float (&dots)[MT][CELL_TILES][4])
    {
        if (a.softcap <= 0.0f) return;
        const float inner = scale_of(a, unscale).inner;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < CELL_TILES; n++)
#pragma unroll
                for (int k = 0; k < 4; k++) dots[m][n][k] = tanhf(dots[m][n][k] * inner);
    }

    /* Masks the positions that a row does not see. Only tiles at the edges need it. */
    static __device__ __forceinline__ void mask(const prompt_view &v, const prompt_row *rows, int tile, float (&dots)[MT][CELL_TILES][4])
    {
        if (tile * CELLS >= v.all_see_from && (tile + 1) * CELLS - 1 <= v.all_see_last) return;
        const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, first = tile * CELLS + threadIdx.x % 4 * 2;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int low = rows[warp * OWN + 16 * m + 8 * h + g].low - first,
                          high = rows[warp * OWN + 16 * m + 8 * h + g].high - first;
#pragma unroll
                for (int n = 0; n < CELL_TILES; n++)
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        if (8 * n + k < low || 8 * n + k > high) dots[m][n][2 * h + k] = -INFINITY;
            }
    }

    /* Turns products into weights times 2^HEADROOM. If a running maximum grew by more than ATTEND_LAG, the sums are rescaled. */
    __device__ __forceinline__ void scores_to_weights(float factor, float (&dots)[MT][CELL_TILES][4])
    {
        float top[MT][2];
        bool grows = false;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float x = -INFINITY;
#pragma unroll
                for (int n = 0; n < CELL_TILES; n++)
#pragma unroll
                    for (int k = 2 * h; k < 2 * h + 2; k++) x = fmaxf(x, dots[m][n][k]);
                top[m][h] = quad_max(x) * factor;
                grows = grows || top[m][h] > max_score[m][h] + ATTEND_LAG;
            }
        if (__any_sync(0xffffffffu, grows)) update_max(top);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < CELL_TILES; n++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int h = k / 2;
                    dots[m][n][k] = power_of_two(fmaf(dots[m][n][k], factor, ATTEND_HEADROOM - max_score[m][h]));
                    weight[m][h] += dots[m][n][k];
                }
    }

    __device__ __forceinline__ void update_max(const float (&top)[MT][2])
    {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float now = fmaxf(max_score[m][h], top[m][h]), down = power_of_two(max_score[m][h] - now);
                max_score[m][h] = now;
                weight[m][h] *= down;
#pragma unroll
                for (int n = 0; n < VALUE_TILES; n++) sums[m][n][2 * h] *= down, sums[m][n][2 * h + 1] *= down;
            }
    }

    /* sums += weights * values */
    __device__ __forceinline__ void add_values(const uint8_t *values, const float (&weights)[MT][CELL_TILES][4])
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *const row = values + lane % 16 * VALUE_STRIDE + lane / 16 * 16;
#pragma unroll
        for (int i = 0; i < CELLS / 16; i++) {
            uint32_t p[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    p[m][k] = pack_f16(weights[m][2 * i + k / 2][k % 2 * 2], weights[m][2 * i + k / 2][k % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < VALUE_TILES; n += 2) {
                uint32_t x[4];
                load_transposed(x, row + i * 16 * VALUE_STRIDE + 16 * n);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma(sums[m][n], p[m], x[0], x[1]);
                    mma(sums[m][n + 1], p[m], x[2], x[3]);
                }
            }
        }
    }

    __device__ __forceinline__ void add_values_carefully(const uint8_t *values, const float (&weights)[MT][CELL_TILES][4])
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *const row = values + lane % 16 * VALUE_STRIDE + lane / 16 * 16;
        uint32_t p[MT][CELLS / 16][4], rest[MT][CELLS / 16][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < CELLS / 16; i++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const float(&two)[4] = weights[m][2 * i + k / 2];
                    p[m][i][k] = pack_f16(two[k % 2 * 2], two[k % 2 * 2 + 1]);
                    rest[m][i][k] = pack_remainders(two[k % 2 * 2], two[k % 2 * 2 + 1], p[m][i][k]);
                }
#pragma unroll
        for (int n = 0; n < VALUE_TILES; n += 2) {
            float tile[MT][2][4] = {};
#pragma unroll
            for (int i = 0; i < CELLS / 16; i++) {
                uint32_t x[4];
                load_transposed(x, row + i * 16 * VALUE_STRIDE + 16 * n);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma(tile[m][0], p[m][i], x[0], x[1]);
                    mma(tile[m][1], p[m][i], x[2], x[3]);
                    mma(tile[m][0], rest[m][i], x[0], x[1]);
                    mma(tile[m][1], rest[m][i], x[2], x[3]);
                }
            }
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int k = 0; k < 8; k++) sums[m][n + k / 4][k % 4] += tile[m][k / 4][k % 4];
        }
    }

    __device__ __forceinline__ void write(const apr_attend_args &a, const attend_parts &parts, const prompt_row *rows)
    {
        const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        const bool is_part = parts.n_parts > 1;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float all = quad_sum(weight[m][h]);
                float factor = 1.0f;
                const int64_t to = rows[warp * OWN + 16 * m + 8 * h + g].which;
                if (to < 0) continue;
                const int64_t at = is_part ? blockIdx.y * a.n_tokens * a.n_heads + to : to;
                if (!is_part) {
                    const float divisor = with_sink(a, (int)to, max_score[m][h] - ATTEND_HEADROOM, all, &factor);
                    factor /= divisor;
                } else if (t == 0) {
                    parts.largest[at] = max_score[m][h] - ATTEND_HEADROOM;
                    parts.weight[at] = all;
                }
                float *const out = (is_part ? parts.sums : a.out) + at * a.value_dim + 2 * t;
#pragma unroll
                for (int n = 0; n < VALUE_TILES; n++)
                    if (8 * n < a.value_dim)
                        *(float2 *)(out + 8 * n) = make_float2(sums[m][n][2 * h] * factor, sums[m][n][2 * h + 1] * factor);
            }
    }
};

template <apr_dtype KV, int KEY, int VALUE, int MT, int CELLS, bool CAREFUL>
static __global__ void __launch_bounds__(THREADS, VALUE > 128 ? 1
                                                  : CAREFUL   ? 1
                                                              : 2)
    k_prompt(const __grid_constant__ apr_attend_args a, const __grid_constant__ attend_parts parts, const bool two)
{
    typedef prompt<KEY, VALUE, MT, CELLS, CAREFUL> P;
    extern __shared__ __align__(16) uint8_t prompt_shared[];
    uint8_t *const queries = prompt_shared, *const remainders = queries + P::QUERIES,
                   *const keys = CAREFUL ? remainders + P::QUERIES : remainders, *const values = keys + P::KEYS;
    const int key_dim = (int)a.key_dim, value_dim = (int)a.value_dim;
    __shared__ prompt_view v; /* in shared memory to save registers */
    __shared__ prompt_row rows[P::ROWS];
    tile_loader<KV, KEY, CELLS> next_keys;
    tile_loader<KV, VALUE, CELLS> next_values;
    P s;

#if __CUDA_ARCH__ < 800
    if (P::BYTES > ATTEND_BYTES_75 || KV != APR_F16) return; /* never started there, and no reason to spill */
#endif
    if (threadIdx.x == 0) v = view_of<P::ROWS, CELLS>(a, parts);
    __syncthreads();
    if (v.begin < v.end) next_keys.start(a, a.keys, key_dim, v, v.begin, keys);
    if (v.begin < v.end && two) next_values.start(a, a.values, value_dim, v, v.begin, values);
    if (threadIdx.x < P::ROWS) put_row(a, v, threadIdx.x, rows);
    __syncthreads();
    const float unscale = P::put_queries(a, rows, queries, remainders), factor = scale_of(a, unscale).factor;
    s.clear();
    for (int tile = v.begin; tile < v.end; tile++) {
        float dots[MT][P::CELL_TILES][4] = {};
        const int here = two && (tile - v.begin) % 2 != 0 ? P::TILE : 0, there = P::TILE - here;
        next_keys.finish(key_dim, v, tile, keys + here);
        if (two) next_values.finish(value_dim, v, tile, values + here);
        __syncthreads(); /* the tile has arrived, and the previous one has been used */
        if (!two) next_values.start(a, a.values, value_dim, v, tile, values);
        else if (tile + 1 < v.end) {
            next_keys.start(a, a.keys, key_dim, v, tile + 1, keys + there);
            next_values.start(a, a.values, value_dim, v, tile + 1, values + there);
        }
        P::multiply(queries, remainders, keys + here, dots);
        if (MT == 1) P::cap(a, unscale, dots); /* with more rows there are not enough registers */
        P::mask(v, rows, tile, dots);
        s.scores_to_weights(factor, dots);
        if (!two) {
            next_values.finish(value_dim, v, tile, values);
            __syncthreads(); /* the values have arrived, and the keys have been used */
            if (tile + 1 < v.end) next_keys.start(a, a.keys, key_dim, v, tile + 1, keys);
        }
        if (CAREFUL) s.add_values_carefully(values + here, dots);
        else s.add_values(values + here, dots);
    }
    s.write(a, parts, rows);
}

template <apr_dtype KV, int KEY, int VALUE, int MT, int CELLS, bool CAREFUL>
static cudaError_t start_prompt(const apr_attend_args *a, cudaStream_t stream)
{
    typedef prompt<KEY, VALUE, MT, CELLS, CAREFUL> P;
    const int64_t n_rows = a->n_tokens * (a->n_heads / a->n_kv_heads), n_blocks = (n_rows + P::ROWS - 1) / P::ROWS * a->n_kv_heads;
    attend_card card;
    cudaError_t error = apr_cuda_attend_gpu(&card);
    if (error != cudaSuccess) return error;
    if (P::BYTES > card.most_bytes || (card.is_75 && KV != APR_F16)) return cudaErrorNotSupported;
    const bool two = KV == APR_F16 && !CAREFUL && 2 * (P::BYTES + P::TILE) + 4096 <= card.most_bytes; /* two blocks still fit */
    const int n_bytes = P::BYTES + (two ? P::TILE : 0);
    error = cudaFuncSetAttribute(k_prompt<KV, KEY, VALUE, MT, CELLS, CAREFUL>, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
    if (error != cudaSuccess) return error;
    const attend_parts parts = apr_cuda_cut_context(a, n_blocks, 2 * card.n_sms, CELLS, 1);
    const dim3 grid((unsigned)n_blocks, (unsigned)parts.n_parts);
    k_prompt<KV, KEY, VALUE, MT, CELLS, CAREFUL><<<grid, THREADS, n_bytes, stream>>>(*a, parts, two);
    error = cudaGetLastError();
    return error == cudaSuccess && parts.n_parts > 1 ? apr_cuda_combine_parts(a, &parts, CELLS, stream) : error;
}

#endif
