/* attend_decode.cuh - attention of up to 8 tokens to an FP16 cache, on tensor cores, as accurate as float32. Other kernels handle what it
 * does not.
 *
 * A thread block has a tile of 8 rows that share a key/value head, and a part of the context. Queries are two FP16 parts: the rounded
 * numbers are rows 0 to 7 of operand a, their rounding errors rows 8 to 15, so that one product handles both. The resulting scores are in
 * the layout of the next product's operand b, the weights, which also have two parts; values are transposed by their load. Each warp has
 * its own cells, 16 at a time, and its own ring of them in shared memory: no warp waits for another before the end. The running maximum may
 * lag by 2^LAG before sums are rescaled. Weights are multiplied by 2^HEADROOM, so that rounding errors of small ones are not subnormal.
 *
 * For one token it may include the QKV epilogue (qkv_epilogue.cuh), so that no kernel is needed between the product and attention: each block norms
 * and rotates its own queries, and the block with the newest cell writes its key and value. Older cells are loaded before the product has
 * finished. */
#ifndef APR_KERNELS_CUDA_ATTEND_DECODE_CUH
#define APR_KERNELS_CUDA_ATTEND_DECODE_CUH

#include "kernels/cuda/attention/attend_combine.cuh"
#include "kernels/cuda/attention/qkv_epilogue.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/norm.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { ROWS = 8, CELL_TILE = 16, MAX_WARPS = 8, MAX_CLUSTER = 8, MIN_CELL_TILES = 8 };

/* A block's work; positions count from the first one that its rows see. */
typedef struct decode_view {
    int kv_head, group, first_row, n_rows; /* n_rows: of the key/value head */
    int from, n_seen;                      /* position 0; number of positions */
    int begin, end, n_used;                /* cell tiles of this part; parts */
    int low, high;                         /* first and last position that this lane's row sees; high < low: no row */
    bool several;                          /* several tokens; a compile-time false if there is only one */
} decode_view;

/* Parts of a cluster are combined quickly, others take microseconds: a context that two rounds of a cluster's warps can read is not split
 * further. */
static __device__ __forceinline__ attend_shares share_cell_tiles(const apr_attend_args &a, int position, const attend_parts &parts,
                                                                 int cluster)
{
    attend_shares s = share_context<CELL_TILE>(a, position, parts);
    const int n = (position + (int)a.n_tokens - first_seen(a, position) - 1) / CELL_TILE + 1;
    if (n <= 2 * MIN_CELL_TILES * cluster) s.each = (n + cluster - 1) >> (31 - __clz(cluster));
    const int least = n <= 16 * MIN_CELL_TILES ? MIN_CELL_TILES : 2 * MIN_CELL_TILES;
    if (s.each < least) s.each = least;
    s.n_used = n <= s.each ? 1 : (n - 1) / s.each + 1;
    return s;
}

/* A sequence decoded on its own splits its context into parts of 512 positions. Longer contexts use at most APR_CUDA_ATTEND_SPLITS parts.
 * So the split does not depend on other tokens. */
enum { PER_SEQUENCE_TILES = 32 };

APR_HOST_DEVICE_INLINE int per_sequence_parts(int n_seen, int *each)
{
    const int n = (n_seen - 1) / CELL_TILE + 1, least = (n - 1) / APR_CUDA_ATTEND_SPLITS + 1;
    *each = least > PER_SEQUENCE_TILES ? least : PER_SEQUENCE_TILES;
    return (n - 1) / *each + 1;
}

template <bool PER_SEQUENCE>
static __device__ __forceinline__ attend_shares shares_of(const apr_attend_args &a, int position, const attend_parts &parts, int cluster)
{
    attend_shares s;
    if (!PER_SEQUENCE) return share_cell_tiles(a, position, parts, cluster);
    s.n_used = per_sequence_parts(position + 1 - first_seen(a, position), &s.each);
    return s;
}

/* tile: the tile of 8 rows. ONE: there is one token. */
template <bool PER_SEQUENCE, bool ONE>
static __device__ __forceinline__ decode_view view_of(const apr_attend_args &a, const attend_parts &parts, int cluster, int tile)
{
    const int position = own_position(a);
    const attend_shares shares = shares_of<PER_SEQUENCE>(a, position, parts, cluster);
    decode_view v;
    v.group = group_of(a);
    v.kv_head = blockIdx.y;
    v.first_row = tile * ROWS;
    v.several = !ONE && a.n_tokens > 1;
    v.n_rows = v.several ? (int)a.n_tokens * v.group : v.group;
    const int row = v.first_row + threadIdx.x % 32 / 4, last_row = v.first_row + ROWS < v.n_rows ? v.first_row + ROWS - 1 : v.n_rows - 1;
    const int own = v.several ? position + row / v.group : position; /* a single token: the position of all rows */
    v.from = v.several ? first_seen(a, position + v.first_row / v.group) : first_seen(a, position);
    v.n_seen = (v.several ? position + last_row / v.group : position) - v.from + 1;
    const int n_cell_tiles = (v.n_seen + CELL_TILE - 1) / CELL_TILE, begin = blockIdx.x * shares.each;
    v.begin = begin < n_cell_tiles ? begin : n_cell_tiles;
    v.end = begin + shares.each < n_cell_tiles ? begin + shares.each : n_cell_tiles;
    v.n_used = shares.n_used;
    v.low = first_seen(a, own) - v.from;
    v.high = row < v.n_rows ? own - v.from : -1;
    return v;
}

/* The index of row `row` of the key/value head in queries and output. */
static __device__ __forceinline__ int whole_row(const apr_attend_args &a, const decode_view &v, int row)
{
    if (!v.several) return v.kv_head * v.group + row;
    return row / v.group * (int)a.n_heads + v.kv_head * v.group + row % v.group;
}

/* Where a row's sums, largest score and weight are stored; largest NULL: the sums are the output of row `row`. */
typedef struct decode_place {
    float *sums, *largest, *weight;
    int row;
} decode_place;

/* Stores four columns, by all 32 lanes together. */
static __device__ __forceinline__ void write_sums(const apr_attend_args &a, const attend_parts &parts, const decode_place &to, int column,
                                                  bool on, float4 value)
{
    if (to.largest == NULL) write_output(a, parts, to.row, column, on, value);
    else if (on) *(float4 *)(to.sums + column) = value;
}

static __device__ __forceinline__ decode_place place_of_row(const apr_attend_args &a, const attend_parts &parts, const decode_view &v,
                                                            int row, bool is_output, int part)
{
    const int to = whole_row(a, v, v.first_row + row);
    if (is_output) return decode_place{NULL, NULL, NULL, to};
    const int64_t at = part * (a.n_tokens * a.n_heads) + to;
    return decode_place{parts.sums + at * a.value_dim, parts.largest + at, parts.weight + at, to};
}

template <int KEY, int VALUE, bool PER_SEQUENCE> struct decode {
    /* rows are 16 bytes apart modulo 128, so that eight of them are in different banks */
    static constexpr int KEY_STRIDE = 2 * KEY + 16, VALUE_STRIDE = 2 * VALUE + 16, STAGE = CELL_TILE * (KEY_STRIDE + VALUE_STRIDE);
    static constexpr int KEY_STEPS = KEY / 16, VALUE_STEPS = VALUE / 16, SUMS_STRIDE = VALUE + 4;
    static constexpr int RESULT_STRIDE = VALUE + 4, RESULTS_AT = MAX_WARPS * ROWS * (SUMS_STRIDE + 2); /* for the cluster */
    static constexpr int SUMS_BYTES = (RESULTS_AT + ROWS * RESULT_STRIDE) * (int)sizeof(float);

    /* Registers for two blocks where there is PDL: this one, and one of the next product, which can then begin before this one ends. On
     * 10.0 and later the compiler does not manage with so few. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1000)
    static constexpr int RESIDENT = 1;
#else
    static constexpr int RESIDENT = KEY + VALUE <= 256 ? 2 : 1;
#endif
    static constexpr int COMBINED_AT_ONCE = KEY + VALUE <= 256 ? 16 : 32;

    float sums[VALUE_STEPS][4]; /* columns 16 i + g (and + 8) of rows 2 t and 2 t + 1 */
    float max_score, weight;    /* of row g */

    /* Shared memory of rotated queries, the newest key and value. The stride lets lanes (g, t), which read rows g from columns 2 t on, use
     * different banks. */
    static constexpr int HEAD_STRIDE = KEY + 8, HEADS_BYTES = (ROWS + 2) * HEAD_STRIDE * (int)sizeof(float);

    /* Loads the queries as the left operand. `heads`: they are in shared memory, HEAD_STRIDE apart. Returns the factor of the scores. */
    static __device__ __forceinline__ float load_queries(const apr_attend_args &a, const decode_view &v, const float *heads,
                                                         uint32_t (&q)[KEY_STEPS][4])
    {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, from = v.high < v.low ? 0 : g;
        const float *const row =
            heads != NULL ? heads + from * HEAD_STRIDE : a.q + (int64_t)whole_row(a, v, v.first_row + from) * a.key_dim;
        float2 x[KEY_STEPS][2];
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < KEY_STEPS; i++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const int column = 16 * i + 8 * k + 2 * t;
                x[i][k] = column < a.key_dim ? *(const float2 *)(row + column) : make_float2(0.0f, 0.0f);
                largest = fmaxf(largest, fmaxf(fabsf(x[i][k].x), fabsf(x[i][k].y)));
            }
        const float scale = row_scale(quad_max(largest));
#pragma unroll
        for (int i = 0; i < KEY_STEPS; i++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                q[i][2 * k] = pack_f16(x[i][k].x * scale, x[i][k].y * scale);
                q[i][2 * k + 1] = pack_remainders(x[i][k].x * scale, x[i][k].y * scale, q[i][2 * k]);
            }
        return inverse_power(scale);
    }

    /* Copies 16 rows of a cache; rows from n_there on, and columns that the cache does not have, become zeros. */
    template <int DIM>
    static __device__ __forceinline__ void copy_rows(const apr_attend_args &a, const apr_cache &cache, int width, const decode_view &v,
                                                     int n_there, int cell_tile, uint8_t *to)
    {
        const int lane = threadIdx.x % 32, remaining = n_there - cell_tile * CELL_TILE;
        const uint32_t cell_bytes = (uint32_t)(a.n_kv_heads * cache.row_bytes), n_cells = (uint32_t)cache.n_cells;
        const int first = v.from + cell_tile * CELL_TILE;
        const bool in_pages = PER_SEQUENCE && cache.pages != NULL;
        const uint32_t cell = in_pages ? (uint32_t)apr_cache_cell(&cache, first) : cell_of(cache, first);
        const uint8_t *const data = cache.data + v.kv_head * cache.row_bytes;
        if (in_pages ? first % APR_PAGE_CELLS + CELL_TILE <= APR_PAGE_CELLS : cell + CELL_TILE <= n_cells) {
            const uint8_t *const from = data + (uint64_t)cell * cell_bytes;
#pragma unroll
            for (int i = 0; i < CELL_TILE * DIM / 8 / 32; i++) {
                const int at = lane + 32 * i, row = at / (DIM / 8), piece = at % (DIM / 8);
                copy_16(to + row * (2 * DIM + 16) + 16 * piece, from + (uint64_t)(uint32_t)row * cell_bytes + 16 * piece,
                        row < remaining && 8 * piece < width);
            }
            return;
        }
#pragma unroll 1
        for (int at = lane; at < CELL_TILE * DIM / 8; at += 32) { /* across the ring buffer's end, or on two pages */
            const int row = at / (DIM / 8), piece = at % (DIM / 8);
            const bool there = row < remaining && 8 * piece < width;
            uint32_t where = cell + row;
            if (in_pages) where = there ? (uint32_t)apr_cache_cell(&cache, first + row) : 0;
            while (where >= n_cells) where -= n_cells;
            copy_16(to + row * (2 * DIM + 16) + 16 * piece, there ? data + (uint64_t)where * cell_bytes + 16 * piece : data, there);
        }
    }

    static __device__ __forceinline__ void copy_cell_tile(const apr_attend_args &a, const decode_view &v, int n_there, int cell_tile,
                                                          uint8_t *stage)
    {
        if (cell_tile < v.end) {
            copy_rows<KEY>(a, a.keys, (int)a.key_dim, v, n_there, cell_tile, stage);
            copy_rows<VALUE>(a, a.values, (int)a.value_dim, v, n_there, cell_tile, stage + CELL_TILE * KEY_STRIDE);
        }
        end_copies(); /* a group for each tile, also for those that do not exist, since groups are counted */
    }

    /* Scores of row g with cells 2 t, 2 t + 1, 2 t + 8 and 2 t + 9. */
    static __device__ __forceinline__ void score(const apr_attend_args &a, const decode_view &v, const uint32_t (&q)[KEY_STEPS][4],
                                                 attend_scale scale, int cell_tile, const uint8_t *keys, float (&scores)[4])
    {
        const int lane = threadIdx.x % 32, t = threadIdx.x % 4;
        const uint8_t *const row = keys + (lane / 16 * 8 + lane % 8) * KEY_STRIDE + lane / 8 % 2 * 16;
        float dots[2][2][4] = {}; /* [8 cells][even or odd steps]; d[2] and d[3] are of the queries' rounding errors */
#pragma unroll
        for (int i = 0; i < KEY_STEPS; i++) {
            uint32_t k[4];
            load_matrices(k, row + 32 * i);
            mma(dots[0][i % 2], q[i], k[0], k[1]);
            mma(dots[1][i % 2], q[i], k[2], k[3]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float(&d)[2][4] = dots[j / 2];
            const float dot = (d[0][j % 2] + d[1][j % 2]) + (d[0][j % 2 + 2] + d[1][j % 2 + 2]);
            const int position = cell_tile * CELL_TILE + j / 2 * 8 + 2 * t + j % 2;
            const float x = a.softcap > 0.0f ? tanhf(dot * scale.inner) : dot;
            scores[j] = position >= v.low && position <= v.high ? x * scale.factor : -INFINITY;
        }
    }

    /* Updates the rows' running maximum. If one grew by more than ATTEND_LAG, the sums are rescaled. */
    __device__ __forceinline__ void update_max(const float (&scores)[4])
    {
        const int t = threadIdx.x % 4;
        const float top = quad_max(fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3])));
        if (!__any_sync(0xffffffffu, top > max_score + ATTEND_LAG)) return;
        const float now = fmaxf(max_score, top), down = power_of_two(max_score - now);
        const float even = __shfl_sync(0xffffffffu, down, 8 * t), odd = __shfl_sync(0xffffffffu, down, 8 * t + 4);
        max_score = now;
        weight *= down;
#pragma unroll
        for (int i = 0; i < VALUE_STEPS; i++) sums[i][0] *= even, sums[i][1] *= odd, sums[i][2] *= even, sums[i][3] *= odd;
    }

    __device__ __forceinline__ void add_values(const float (&scores)[4], const uint8_t *values)
    {
        const int lane = threadIdx.x % 32;
        const uint8_t *const row = values + (lane / 16 * 8 + lane % 8) * VALUE_STRIDE + lane / 8 % 2 * 16;
        float p[4];
#pragma unroll
        for (int j = 0; j < 4; j++) weight += p[j] = power_of_two(scores[j] - (max_score - ATTEND_HEADROOM));
        const uint32_t b0 = pack_f16(p[0], p[1]), b1 = pack_f16(p[2], p[3]);
        const uint32_t rest0 = pack_remainders(p[0], p[1], b0), rest1 = pack_remainders(p[2], p[3], b1);
#pragma unroll
        for (int i = 0; i < VALUE_STEPS; i++) {
            uint32_t x[4];
            float cell_tile[4] = {}; /* added outside the tensor cores, which would truncate the sums each time */
            load_transposed(x, row + 32 * i);
            mma(cell_tile, x, rest0, rest1);
            mma(cell_tile, x, b0, b1);
#pragma unroll
            for (int k = 0; k < 4; k++) sums[i][k] += cell_tile[k];
        }
    }

    /* Stores the warps' sums in shared memory: [n_warps][ROWS][SUMS_STRIDE], then largest scores and weights. */
    __device__ __forceinline__ void put_sums(float *shared)
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        float *const tops = shared + MAX_WARPS * ROWS * SUMS_STRIDE, *const weights = tops + MAX_WARPS * ROWS;
        weight = quad_sum(weight);
        if (t == 0) tops[warp * ROWS + g] = max_score, weights[warp * ROWS + g] = weight;
#pragma unroll
        for (int i = 0; i < VALUE_STEPS; i++)
#pragma unroll
            for (int k = 0; k < 4; k++) shared[(warp * ROWS + 2 * t + k % 2) * SUMS_STRIDE + 16 * i + k / 2 * 8 + g] = sums[i][k];
    }

    /* Combines a row's sums over the warps, in order, by one warp; normalized if there is one part. */
    static __device__ __forceinline__ void write_row(const apr_attend_args &a, const attend_parts &parts, const decode_view &v,
                                                     const float *shared, int row, const decode_place &to)
    {
        const float *const tops = shared + MAX_WARPS * ROWS * SUMS_STRIDE, *const weights = tops + MAX_WARPS * ROWS;
        const int n_warps = blockDim.x / 32, lane = threadIdx.x % 32;
        float factors[MAX_WARPS], largest = ATTEND_LOWEST, sum = 0.0f, factor = 1.0f;
#pragma unroll
        for (int w = 0; w < MAX_WARPS; w++)
            if (w < n_warps) largest = fmaxf(largest, tops[w * ROWS + row]);
#pragma unroll
        for (int w = 0; w < MAX_WARPS; w++)
            if (w < n_warps) sum = fmaf(factors[w] = power_of_two(tops[w * ROWS + row] - largest), weights[w * ROWS + row], sum);
        largest -= ATTEND_HEADROOM; /* the weights were computed with this */
        if (to.largest == NULL) {
            const float divisor = with_sink(a, whole_row(a, v, v.first_row + row), largest, sum, &factor);
            factor /= divisor;
        }
        for (int begin = 0; begin < a.value_dim; begin += 128) {
            const int column = begin + 4 * lane;
            float4 all = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int w = 0; w < MAX_WARPS; w++) {
                if (w >= n_warps || column >= a.value_dim) continue;
                const float4 one = *(const float4 *)(shared + (w * ROWS + row) * SUMS_STRIDE + column);
                all = make_float4(fmaf(factors[w], one.x, all.x), fmaf(factors[w], one.y, all.y), fmaf(factors[w], one.z, all.z),
                                  fmaf(factors[w], one.w, all.w));
            }
            write_sums(a, parts, to, column, column < a.value_dim,
                       make_float4(all.x * factor, all.y * factor, all.z * factor, all.w * factor));
        }
        if (to.largest != NULL && lane == 0) *to.largest = largest, *to.weight = sum;
    }

    /* Combines a row's sums over the blocks of a cluster, in order, by a warp of one block: RESULT_STRIDE apart in `results` of each. */
    static __device__ __forceinline__ void combine_cluster_row(const apr_attend_args &a, const attend_parts &parts, const decode_view &v,
                                                               const float *results, int row, int n_blocks, const decode_place &to)
    {
        const int lane = threadIdx.x % 32;
        const float *const mine = results + row * RESULT_STRIDE;
        float4 last = make_float4(ATTEND_LOWEST, 0.0f, 0.0f, 0.0f);
        if (lane < n_blocks) last = cluster_load((const float4 *)(mine + VALUE), lane);
        const float largest = warp_max(last.x), own = power_of_two(last.x - largest), sum = warp_sum(own * last.y);
        float factor = 1.0f;
        if (to.largest == NULL) {
            const float divisor = with_sink(a, whole_row(a, v, v.first_row + row), largest, sum, &factor);
            factor /= divisor;
        }
#pragma unroll 1
        for (int begin = 0; begin < a.value_dim; begin += 128) {
            const int column = begin + 4 * lane;
            float4 x[MAX_CLUSTER], all = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int i = 0; i < MAX_CLUSTER; i++)
                x[i] = i < n_blocks && column < VALUE ? cluster_load((const float4 *)(mine + column), i) : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int i = 0; i < MAX_CLUSTER; i++) {
                const float f = __shfl_sync(0xffffffffu, own, i);
                all = make_float4(fmaf(f, x[i].x, all.x), fmaf(f, x[i].y, all.y), fmaf(f, x[i].z, all.z), fmaf(f, x[i].w, all.w));
            }
            write_sums(a, parts, to, column, column < a.value_dim,
                       make_float4(all.x * factor, all.y * factor, all.z * factor, all.w * factor));
        }
        if (to.largest != NULL && lane == 0) *to.largest = largest, *to.weight = sum;
    }
};

static __device__ __forceinline__ void await_oldest(int n_stages)
{
    if (n_stages == 4) await_copies<3>();
    else if (n_stages == 3) await_copies<2>();
    else if (n_stages == 2) await_copies<1>();
    else await_copies<0>();
}

/* The cluster's blocks divide the 8 rows among themselves; the second barrier keeps their shared memory alive until all have read it. */
template <int KEY, int VALUE, bool PER_SEQUENCE>
static __device__ __forceinline__ void combine_cluster(const apr_attend_args &a, const attend_parts &parts, const decode_view &v,
                                                       const float *results)
{
    const int rank = (int)blockIdx.x;
    cluster_barrier();
    for (int row = rank + v.n_used * (int)(threadIdx.x / 32); row < ROWS && v.first_row + row < v.n_rows;
         row += v.n_used * (int)(blockDim.x / 32))
        decode<KEY, VALUE, PER_SEQUENCE>::combine_cluster_row(a, parts, v, results, row, v.n_used, place_of_row(a, parts, v, row, true, 0));
    cluster_barrier();
}

/* Ends the block's rows. Several parts are combined by the cluster if it has all of them; by the last block to finish with a sequence per
 * token (done: the flags of the set); else by the next kernel. */
template <int KEY, int VALUE, bool PER_SEQUENCE>
static __device__ __forceinline__ void write_or_combine(const apr_attend_args &a, const attend_parts &parts, const decode_view &v,
                                                        const float *shared, float *results, int cluster, uint64_t *done)
{
    typedef decode<KEY, VALUE, PER_SEQUENCE> D;
    const int n_warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const bool in_cluster = cluster > 1 && v.n_used > 1;
    for (int row = warp; row < ROWS && v.first_row + row < v.n_rows; row += n_warps) {
        float *const own = results + row * D::RESULT_STRIDE;
        D::write_row(a, parts, v, shared, row,
                     in_cluster ? decode_place{own, own + VALUE, own + VALUE + 1, 0}
                                : place_of_row(a, parts, v, row, v.n_used == 1, blockIdx.x));
    }
    if (in_cluster) combine_cluster<KEY, VALUE, PER_SEQUENCE>(a, parts, v, results);
    if constexpr (PER_SEQUENCE) {
        if (v.n_used == 1 || !is_last_block(done, (int)blockIdx.x, v.n_used)) return;
        for (int row = warp; row < ROWS && v.first_row + row < v.n_rows; row += n_warps)
            combine_row<D::COMBINED_AT_ONCE>(a, parts, v.n_used, whole_row(a, v, v.first_row + row));
    }
}

typedef struct no_qkv {
    char nothing;
} no_qkv;

/* A block's heads: its rows of queries, and, if it has the newest cell, that cell's key and value. They are so many heads, divided among
 * the warps, two at a time. Gains and addresses, which do not depend on the product, are loaded before it has finished, the rest at once
 * after: memory latency is longer than the arithmetic. The bits are those of qkv_epilogue.cuh. */
template <int KEY, int VALUE> struct qkv_heads {
    typedef decode<KEY, VALUE, false> D;
    static constexpr int LOADS = KEY / 32, FREQS = (KEY / 2 + 31) / 32, AT_ONCE = 2; /* heads of a warp at a time */
    const apr_qkv_epilogue_args &t;
    const apr_attend_args &a;
    const decode_view &v;
    float *heads;                     /* [ROWS + 2][HEAD_STRIDE] */
    int n_own_heads, n_queries, step; /* step: from one of a warp's heads to its next one */
    float gains[AT_ONCE][LOADS], x[AT_ONCE][LOADS], cosines[FREQS], sines[FREQS];

    __device__ __forceinline__ int index_of(int from, int k) const { return min(from + k * step, n_own_heads - 1); }
    __device__ __forceinline__ int width_of(int index) const { return index > n_queries ? (int)a.value_dim : (int)a.key_dim; }
    /* The offset of a head among all heads of its kind. */
    __device__ __forceinline__ int before(int index) const
    {
        if (index < n_queries) return whole_row(a, v, v.first_row + index) * (int)a.key_dim;
        return v.kv_head * width_of(index);
    }
    __device__ __forceinline__ const float *source(int index) const
    {
        return (index < n_queries ? source_of(t.q_norm, t.q) : index == n_queries ? source_of(t.k_norm, t.k) : t.store.v) + before(index);
    }

    __device__ __forceinline__ void load_gains(int from)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int index = index_of(from, k), n = width_of(index);
            const apr_norm_args &norm = index < n_queries ? t.q_norm : t.k_norm;
            const bool has = index <= n_queries && norm.chunk > 0 && norm.weight != NULL;
            const float *const row = has ? norm.weight + (uint32_t)before(index) % (uint32_t)norm.n_weight : NULL;
#pragma unroll
            for (int i = 0; i < LOADS; i++) gains[k][i] = has && lane + 32 * i < n ? __ldg(row + lane + 32 * i) + norm.offset : 1.0f;
        }
    }

    __device__ __forceinline__ void load_angles()
    {
        const int lane = threadIdx.x % 32, n = (int)t.q.n_freqs;
#pragma unroll
        for (int i = 0; i < FREQS; i++) {
            const int j = lane + 32 * i;
            cosines[i] = j < n ? __ldcg(t.q.angles + j) : 0.0f;
            sines[i] = j < n ? __ldcg(t.q.angles + n + j) : 0.0f;
        }
    }

    __device__ __forceinline__ void load_heads(int from)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int index = index_of(from, k), n = width_of(index);
            const float *const row = source(index);
#pragma unroll
            for (int i = 0; i < LOADS; i++) x[k][i] = lane + 32 * i < n ? __ldcg(row + lane + 32 * i) : 0.0f;
        }
    }

    __device__ __forceinline__ void norm(int index, const float (&gain)[LOADS], float (&y)[LOADS]) const
    {
        const apr_norm_args &norm = index < n_queries ? t.q_norm : t.k_norm;
        float sum = 0.0f;
        if (index > n_queries || norm.chunk == 0) return;
#pragma unroll
        for (int i = 0; i < LOADS; i++) sum = fmaf(y[i], y[i], sum);
        const float scale = scale_of_squares(warp_sum(sum) / (float)norm.chunk, norm.eps);
#pragma unroll
        for (int i = 0; i < LOADS; i++) y[i] = y[i] * scale * gain[i];
    }

    __device__ __forceinline__ void rotate(const apr_rope_args &rope, float *head) const
    {
        const int n = (int)rope.n_freqs, start = (int)rope.start;
        const bool neighbours = rope.mode == APR_ROPE_NEIGHBOURS;
#pragma unroll
        for (int k = 0; k < FREQS; k++) {
            const int j = (int)threadIdx.x % 32 + 32 * k, i = start + (neighbours ? 2 * j : j), other = i + (neighbours ? 1 : n);
            if (j >= n) continue;
            const float2 pair = rotated(head[i], head[other], cosines[k], sines[k]);
            head[i] = pair.x;
            head[other] = pair.y;
        }
        __syncwarp();
    }

    /* Norms and rotates the heads from `from` on. */
    __device__ __forceinline__ void qkv(int from)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int index = index_of(from, k);
            norm(index, gains[k], x[k]);
            if (from + k * step >= n_own_heads) continue;
#pragma unroll
            for (int i = 0; i < LOADS; i++) heads[index * D::HEAD_STRIDE + lane + 32 * i] = x[k][i];
        }
        __syncwarp();
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int index = from + k * step;
            if (index < n_queries) rotate(t.q, heads + index * D::HEAD_STRIDE);
            else if (index == n_queries && index < n_own_heads) rotate(t.k, heads + index * D::HEAD_STRIDE);
        }
    }

    /* Writes the newest key and value into their cell, and into `stage`, the slot of the warp of this block that has that tile (NULL: the
     * tile is loaded later). */
    __device__ __forceinline__ void store(int from, uint8_t *key, uint8_t *value, uint8_t *stage) const
    {
        const int lane = threadIdx.x % 32, cell = (v.n_seen - 1) % CELL_TILE, end = min(n_own_heads, from + AT_ONCE * step);
#pragma unroll 1
        for (int index = from; index < end; index += step) {
            if (index < n_queries) continue;
            const bool is_key = index == n_queries;
            __half *const there = (__half *)(is_key ? key : value);
            __half *const here = (__half *)(stage + (is_key ? cell * D::KEY_STRIDE : CELL_TILE * D::KEY_STRIDE + cell * D::VALUE_STRIDE));
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                const __half x = to_half(heads[index * D::HEAD_STRIDE + lane + 32 * i]);
                const bool on = lane + 32 * i < width_of(index);
                if (on) there[lane + 32 * i] = x;
                if (on && stage != NULL) here[lane + 32 * i] = x;
            }
        }
    }
};

/* The address of a head in a cell of the cache. */
static __device__ __forceinline__ uint8_t *cell_at(const apr_cache &cache, const apr_attend_args &a, int position, int kv_head)
{
    return cache.data + ((uint64_t)cell_of(cache, position) * (uint32_t)a.n_kv_heads + (uint32_t)kv_head) * (uint64_t)cache.row_bytes;
}

/* Fills the rings with earlier tokens' cells, then processes this token's heads; the block's queries are ready when it returns. */
template <int KEY, int VALUE>
static __device__ __forceinline__ void fill_and_prepare(const apr_qkv_epilogue_args &t, const apr_attend_args &a, const decode_view &v,
                                                        int n_stages, uint8_t *rings, float *heads)
{
    typedef decode<KEY, VALUE, false> D;
    typedef qkv_heads<KEY, VALUE> own_heads;
    const int n_warps = blockDim.x / 32, warp = threadIdx.x / 32, newest = (v.n_seen - 1) / CELL_TILE, remaining = v.n_rows - v.first_row;
    const bool has_newest = newest >= v.begin && newest < v.end;
    const int n_queries = remaining < ROWS ? remaining : ROWS, owner = (newest - v.begin) % n_warps, s = (newest - v.begin) / n_warps;
    own_heads own = {t, a, v, heads, has_newest ? n_queries + 2 : n_queries, n_queries, n_warps};
    uint8_t *const ring = rings + warp * n_stages * D::STAGE;
    uint8_t *const stage = has_newest && s < n_stages ? rings + (owner * n_stages + s) * D::STAGE : NULL;
    uint8_t *const key = cell_at(t.store.keys, a, v.from + v.n_seen - 1, v.kv_head);
    uint8_t *const value = cell_at(t.store.values, a, v.from + v.n_seen - 1, v.kv_head);
    for (int i = 0; i < n_stages; i++) D::copy_cell_tile(a, v, v.n_seen - 1, v.begin + warp + i * n_warps, ring + i * D::STAGE);
    own.load_gains(warp);
    heads[D::HEAD_STRIDE - 1] = prefetch_arguments(t) + prefetch_arguments(a); /* after the numbers of a head */
    pdl_wait();
    own.load_angles();
    own.load_heads(warp);
    if (has_newest && warp == owner) await_copies<0>(); /* a cell is written where they go */
    __syncthreads();
#pragma unroll 1
    for (int from = warp;; from += own_heads::AT_ONCE * n_warps) {
        own.qkv(from);
        own.store(from, key, value, stage);
        if (from + own_heads::AT_ONCE * n_warps >= own.n_own_heads) break;
        own.load_gains(from + own_heads::AT_ONCE * n_warps);
        own.load_heads(from + own_heads::AT_ONCE * n_warps);
    }
    __threadfence_block(); /* later loads of the newest cell see it */
    __syncthreads();
}

/* blockIdx.x: the part of the context, y: the key/value head. cluster: a power of two. */
template <int KEY, int VALUE, bool PER_SEQUENCE, typename QKV>
static __device__ __forceinline__ void decode_rows(const apr_attend_args &a, const attend_parts &parts, const QKV &qkv, int n_stages,
                                                   int cluster, int tile, uint64_t *done)
{
    typedef decode<KEY, VALUE, PER_SEQUENCE> D;
    constexpr bool HAS_QKV = sizeof(QKV) > sizeof(no_qkv);
    extern __shared__ __align__(16) uint8_t decode_shared[];
#if __CUDA_ARCH__ < 800
    if (D::SUMS_BYTES > ATTEND_BYTES_75) return; /* not launched there; without this the code would spill */
#endif
    const int n_warps = blockDim.x / 32, warp = threadIdx.x / 32;
    float *const heads = HAS_QKV ? (float *)decode_shared : NULL;
    uint8_t *const rings = decode_shared + (HAS_QKV ? D::HEADS_BYTES : 0), *const ring = rings + warp * n_stages * D::STAGE;
    float *const shared = (float *)rings, *const results = shared + D::RESULTS_AT;
    pdl_trigger();
    const decode_view v = view_of < PER_SEQUENCE, PER_SEQUENCE || HAS_QKV > (a, parts, cluster, tile);
    const bool is_used = (int)blockIdx.x < v.n_used;
    if (!HAS_QKV || !is_used) pdl_wait(); /* also without work: the next kernel relies on it */
    if (!is_used) return;
    uint32_t q[D::KEY_STEPS][4];
    float scores[4];
    D d = {};

    d.max_score = ATTEND_LOWEST;
    if constexpr (HAS_QKV) fill_and_prepare<KEY, VALUE>(qkv, a, v, n_stages, rings, heads);
    else
        for (int s = 0; s < n_stages; s++) D::copy_cell_tile(a, v, v.n_seen, v.begin + warp + s * n_warps, ring + s * D::STAGE);
    const attend_scale scale = scale_of(a, D::load_queries(a, v, heads, q));
    int s = 0;
    for (int cell_tile = v.begin + warp; cell_tile < v.end; cell_tile += n_warps) {
        const uint8_t *const stage = ring + s * D::STAGE;
        await_oldest(n_stages);
        __syncwarp(); /* other lanes' copies are visible */
        D::score(a, v, q, scale, cell_tile, stage, scores);
        d.update_max(scores);
        d.add_values(scores, stage + CELL_TILE * D::KEY_STRIDE);
        __syncwarp(); /* all lanes have read what is overwritten now */
        D::copy_cell_tile(a, v, v.n_seen, cell_tile + n_stages * n_warps, ring + s * D::STAGE);
        s = s + 1 < n_stages ? s + 1 : 0;
    }
    await_copies<0>();
    __syncthreads(); /* the sums overwrite the ring */
    d.put_sums(shared);
    __syncthreads();
    write_or_combine<KEY, VALUE, PER_SEQUENCE>(a, parts, v, shared, results, cluster, done);
}

#endif
