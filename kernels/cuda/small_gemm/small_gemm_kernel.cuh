/* small_gemm_kernel.cuh - the small GEMM kernel (small_gemm.cuh). Row blocks go stage by stage, weights and inputs, through a ring in shared
 * memory.
 *
 * Half of the warps take the first half of a stage's columns, the others the second half. Their sums are added when a run of stages is
 * over, in shared memory that the run has finished with. A thread block has several runs one after another; copies of the next stages are
 * in flight meanwhile. Weights of the first stages are requested before the wait for the inputs. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_KERNEL_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_KERNEL_CUH

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/small_gemm/small_gemm.cuh"
#include "kernels/cuda/small_gemm/small_gemm_codes.cuh"

enum {
    GEMM_SHARED_LEFT = 2048, /* of a block's shared memory: used by CUDA and by declared arrays */
    GEMM_MAX_DEPTH = 4,
    GEMM_RUNS = 8,    /* runs that are kept at a time: the current one and those being loaded */
    GEMM_LARGE = 256, /* rows of a row block if shared memory is large */
    GEMM_SMALL = 128,
    GEMM_AT_ONCE = 8, /* loads of a thread that are in flight together when sums are stored or fixed up */
};

/* Whether the architecture has shared memory for the larger row block. Code is compiled for one size. 10.0 and 10.3 would have room, but
 * their assembler moves a sub-block's products up among the previous ones, and spills. */
static __host__ __device__ constexpr bool gemm_is_large(int arch) { return arch == 80 || arch == 90; }

/* Rows of a row block in code for this architecture; 0: the host pass, which compiles both. */
#ifdef __CUDA_ARCH__
static constexpr int GEMM_ROWS_HERE = gemm_is_large(__CUDA_ARCH__ / 10) ? GEMM_LARGE : GEMM_SMALL;
#else
static constexpr int GEMM_ROWS_HERE = 0;
#endif

/* A part of a call (apr_small_gemm_part) as the kernel sees it. */
typedef struct gemm_part {
    const uint8_t *weight;
    const float *bias;
    float *out;
    int n_row_groups; /* row groups; grouped: of one expert's matrix */
} gemm_part;

typedef struct gemm_call {
    gemm_part parts[APR_SMALL_GEMM_PARTS];
    int n_parts, n_row_groups, n_stages, n_row_blocks;
    int64_t row_bytes;
    bool tiled;
    const uint8_t *x, *sums;
    int64_t part_bytes; /* bytes from the numbers to their rounding errors */
    const float *factors;
    int n_subs;                      /* sub-blocks of a row */
    int n_tiles, first_tile, n_here; /* all tiles; the tiles of this dense launch */
    int64_t n_tokens;
    float *partial;
    const apr_small_gemm_group *groups;
    const int *n_groups;
    int splits;
    int64_t n_slots;
    int depth;
} gemm_call;

/* MS: products of 16 rows in a warp. */
template <apr_dtype D, int TILES_, int ROWS_, int MS_> struct gemm_stage {
    typedef gemm_type<D> T;
    static constexpr apr_dtype TYPE = D;
    static constexpr int TILES = TILES_, ROWS = ROWS_, MS = MS_, ROW_GROUPS = ROWS / APR_ROW_GROUP;
    static constexpr int ROW_WARPS = ROWS / (16 * MS), WARPS = 2 * ROW_WARPS, THREADS = 32 * WARPS, WARP_ROW_GROUPS = ROW_GROUPS / WARPS;
    static constexpr int SUBS = T::COLUMNS / GEMM_SUB;
    static constexpr int WEIGHT_BYTES = (ROWS * T::PITCH + 4 + 127) / 128 * 128; /* one word after the last row may be read */
    static constexpr int TILE_PIECES = SUBS * 32,
                         X_PIECES = T::PARTS * TILES * TILE_PIECES; /* of 16 bytes; [part][tile][sub-block][lane] */
    static constexpr int X_BYTES = 16 * X_PIECES, SUM_BYTES = T::MINS ? TILES * GEMM_SUM_BYTES : 0;
    static constexpr int BYTES = WEIGHT_BYTES + X_BYTES + SUM_BYTES;
    static constexpr int SUM_PITCH = ROWS + 4; /* between tokens' sums; avoids bank conflicts */
    static_assert(WARP_ROW_GROUPS * WARPS == ROW_GROUPS, "warps copy whole row groups");
    static_assert(THREADS % ROWS == 0, "a thread stores sums of one row");
    static_assert(8 * TILES * SUM_PITCH * 4 <= BYTES, "the sums of a run fit a stage");
};

/* A run: stages [stage, end) of a row block, for some tiles of tokens. */
typedef struct gemm_run {
    int stage, end, row_block, first_tile, n_tiles, expert, split;
    bool whole; /* dense: the run has all stages of the row block */
} gemm_run;

/* A thread block's share: runs [first, last); dense: of the stages [begin, end) of all row blocks. */
typedef struct gemm_share {
    int begin, end, first, last;
} gemm_share;

GEMM_FN gemm_share dense_share_of(const gemm_call &a, int block, int n_blocks)
{
    const int n_all = a.n_row_blocks * a.n_stages;
    gemm_share s;
    s.begin = gemm_first(n_all, n_blocks, block), s.end = gemm_first(n_all, n_blocks, block + 1);
    s.first = s.begin / a.n_stages, s.last = s.end > s.begin ? (s.end - 1) / a.n_stages + 1 : s.first;
    return s;
}

GEMM_FN gemm_share share_of(const gemm_call &a, int block, int n_blocks)
{
    gemm_share s = {0, 0, 0, 0};
    if (a.groups != NULL) {
        const int n_runs = read_now(a.n_groups) * a.n_row_blocks * a.splits;
        s.first = gemm_first(n_runs, n_blocks, block), s.last = gemm_first(n_runs, n_blocks, block + 1);
        return s;
    }
    return dense_share_of(a, block, n_blocks);
}

GEMM_FN gemm_run dense_run_of(const gemm_call &a, int r, const gemm_share &share)
{
    const int at = r * a.n_stages;
    gemm_run run;
    run.stage = share.begin > at ? share.begin - at : 0;
    run.end = share.end < at + a.n_stages ? share.end - at : a.n_stages;
    run.row_block = r;
    run.first_tile = a.first_tile, run.n_tiles = a.n_here;
    run.expert = run.split = 0;
    run.whole = run.stage == 0 && run.end == a.n_stages;
    return run;
}

GEMM_FN gemm_run run_of(const gemm_call &a, int r, const gemm_share &share)
{
    gemm_run run;
    if (a.groups == NULL) return dense_run_of(a, r, share);
    const int split = r % a.splits, of_all = r / a.splits;
    const apr_small_gemm_group *const group = a.groups + of_all / a.n_row_blocks;
    run.split = split;
    run.stage = gemm_split(a.n_stages, a.splits, split), run.end = gemm_split(a.n_stages, a.splits, split + 1);
    run.row_block = of_all % a.n_row_blocks;
    run.expert = read_now(&group->expert);
    run.first_tile = read_now(&group->first_tile), run.n_tiles = read_now(&group->n_tiles);
    run.whole = false;
    return run;
}

/* The part of a row group of all parts; *row_group becomes its number in that part. */
GEMM_FN int part_of(const gemm_call &a, int *row_group)
{
    int part = 0;
    while (part + 1 < a.n_parts && *row_group >= a.parts[part].n_row_groups) *row_group -= a.parts[part++].n_row_groups;
    return part;
}

/* --- copies --- */

/* Where a lane's copies of a row group go in a stage, and how many there are, of 16 bytes each. */
typedef struct gemm_copies {
    int to, n;
} gemm_copies;

/* The layout of weights: tiled, where a row group's bytes of a stage are contiguous, or rows, several of which a warp copies at a time. */
template <typename T> struct weight_layout {
    static constexpr int PIECES = T::BYTES / 16, ROWS = T::ROWS ? 32 / PIECES : 1;
    static constexpr int MAX_ROW_COPIES = (APR_ROW_GROUP + ROWS - 1) / ROWS, MAX_TILED_COPIES = (T::BYTES + 31) / 32;
    GEMM_FN bool is_tiled(const gemm_call &a) { return !T::ROWS || (T::TILED && a.tiled); }
};

template <typename S> GEMM_FN gemm_copies copies_of(const gemm_call &a, int in_block, int lane)
{
    typedef weight_layout<typename S::T> L;
    const int row_group = in_block * APR_ROW_GROUP * S::T::PITCH, row = lane / L::PIECES;
    if (L::is_tiled(a)) return gemm_copies{row_group + lane * 16, (S::T::BYTES - lane + 31) / 32}; /* a row group has 16 times BYTES */
    return gemm_copies{row_group + row * S::T::PITCH + lane % L::PIECES * 16,
                       row < L::ROWS ? (APR_ROW_GROUP - row + L::ROWS - 1) / L::ROWS : 0};
}

/* The first address that a lane copies of a row group in a run's first stage; NULL: there is no such row group. */
template <typename S> GEMM_FN const uint8_t *weight_of(const gemm_call &a, const gemm_run &run, int in_block, int lane)
{
    typedef typename S::T T;
    typedef weight_layout<T> L;
    int row_group = run.row_block * S::ROW_GROUPS + in_block;
    if (row_group >= a.n_row_groups) return NULL;
    const int part = part_of(a, &row_group);
    const uint8_t *const from =
        a.parts[part].weight + ((int64_t)run.expert * a.parts[part].n_row_groups + row_group) * (APR_ROW_GROUP * a.row_bytes);
    if (L::is_tiled(a)) return from + (int64_t)run.stage * (APR_ROW_GROUP * T::BYTES) + lane * 16;
    return from + (int64_t)run.stage * T::BYTES + lane / L::PIECES * a.row_bytes + lane % L::PIECES * 16;
}

/* Calls copy(to, from) for each of a lane's copies. */
template <typename S, typename COPY>
GEMM_FN void for_each_weight(const gemm_call &a, const gemm_copies &c, const uint8_t *from, COPY &&copy)
{
    typedef typename S::T T;
    typedef weight_layout<T> L;
    if (L::is_tiled(a)) {
        if constexpr (!T::ROWS || T::TILED) {
            for (int i = 0; i < L::MAX_TILED_COPIES; i++)
                if (i < c.n) copy(c.to + 512 * i, from + 512 * i);
        }
    } else if constexpr (T::ROWS) {
        for (int i = 0; i < L::MAX_ROW_COPIES; i++, from += L::ROWS * a.row_bytes)
            if (i < c.n) copy(c.to + L::ROWS * T::PITCH * i, from);
    }
}
template <typename S> GEMM_FN int stage_step(const gemm_call &a)
{
    return weight_layout<typename S::T>::is_tiled(a) ? APR_ROW_GROUP * S::T::BYTES : S::T::BYTES;
}

/* Calls copy(to, from) for a stage's inputs and their sums, by all threads. */
template <typename S, typename COPY>
GEMM_FN void for_each_input(const gemm_call &a, int stage, int first_tile, int n_tiles, int thread, COPY &&copy)
{
    for (int base = 0; base < S::X_PIECES; base += S::THREADS) {
        const int i = base + thread, piece = i % S::TILE_PIECES, tile = i / S::TILE_PIECES % S::TILES, part = i / S::TILE_PIECES / S::TILES;
        if (tile >= n_tiles || (base + S::THREADS > S::X_PIECES && i >= S::X_PIECES)) continue;
        const int64_t at = ((first_tile + tile) * a.n_subs + stage * S::SUBS) * 32 + piece;
        copy(S::WEIGHT_BYTES + 16 * i, a.x + (part > 0 ? a.part_bytes : 0) + at * 16);
    }
    if constexpr (S::T::MINS) {
        const int tile = thread / 16;
        if (tile >= n_tiles) return;
        const int64_t at = (first_tile + tile) * a.n_stages + stage;
        copy(S::WEIGHT_BYTES + S::X_BYTES + 16 * thread, a.sums + at * GEMM_SUM_BYTES + thread % 16 * 16);
    }
}

/* --- products --- */

/* d += a * b of 16 columns; BF16 from 8.0 on. The compiler may reorder products as long as the order of each sum stays. */
template <bool BF16> static __device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    if constexpr (BF16) ptx_mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
    else ptx_mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
#else
    mma(d, a, b0, b1);
#endif
}

GEMM_FN void scale_add(float (&total)[4], float first, float second, const float (&sums)[4])
{
    total[0] = fmaf(first, sums[0], total[0]);
    total[1] = fmaf(first, sums[1], total[1]);
    total[2] = fmaf(second, sums[2], total[2]);
    total[3] = fmaf(second, sums[3], total[3]);
}

/* A warp's rows of a stage, from `row` on, and its half of the columns; lane 4 g + t. */
typedef struct gemm_warp {
    int row, half, g, t;
} gemm_warp;

template <typename S> GEMM_FN gemm_warp warp_of(int thread)
{
    const int warp = thread / 32, lane = thread % 32;
    return gemm_warp{warp % S::ROW_WARPS * (16 * S::MS), warp / S::ROW_WARPS, lane / 4, lane % 4};
}

/* A lane's row of product m: the first (0), or the one 8 rows further (1). */
template <typename S> GEMM_FN const uint8_t *row_at(const uint8_t *stage, const gemm_warp &w, int m, int second)
{
    return stage + (w.row + w.g) * S::T::PITCH + (16 * m + 8 * second) * S::T::PITCH;
}

/* Keeps the compiler from moving later loads before this point, which would need too many registers. */
GEMM_FN void load_no_earlier(void) { asm volatile("" ::: "memory"); }

template <typename S> struct gemm_heads {
    typename S::T::head of[S::MS][2];
    __device__ __forceinline__ void load(const uint8_t *stage, const gemm_warp &w)
    {
        for (int m = 0; m < S::MS; m++)
            for (int r = 0; r < 2; r++) of[m][r] = S::T::begin(row_at<S>(stage, w, m, r), w.half);
    }
};

/* A lane's weights of sub-block SUB of its warp's half. */
template <typename S, int SUB> struct gemm_operands {
    typedef typename S::T T;
    uint32_t a[S::MS][2][4]; /* step */
    float factors[S::MS][2];

    __device__ __forceinline__ void load(const uint8_t *stage, const gemm_warp &w, const gemm_heads<S> &heads)
    {
        for (int m = 0; m < S::MS; m++) {
            load_no_earlier();
            for (int r = 0; r < 2; r++) {
                const uint8_t *const at = row_at<S>(stage, w, m, r);
                uint32_t codes[2][2];
                T::template codes<SUB>(at, heads.of[m][r], w.half, w.t, codes);
                for (int k = 0; k < 2; k++) a[m][k][r] = codes[k][0], a[m][k][2 + r] = codes[k][1];
                factors[m][r] = T::SPAN == 2 ? T::template factor<SUB>(at, w.half) : 1.0f;
            }
        }
    }
    /* A tile's inputs for both steps. */
    static __device__ __forceinline__ uint4 inputs(const uint8_t *stage, const gemm_warp &w, int part, int tile)
    {
        return *(const uint4 *)(stage + S::WEIGHT_BYTES + ((part * S::TILES + tile) * S::SUBS + SUB) * GEMM_SUB_BYTES +
                                w.half * (S::SUBS / 2 * GEMM_SUB_BYTES) + (4 * w.g + w.t) * GEMM_PIECE);
    }
};

/* Multiplies sub-block SUB of the warp's half with N tiles. */
template <typename S, int N, int SUB>
static __device__ __forceinline__ void add_sub(const uint8_t *stage, const gemm_warp &w, const gemm_heads<S> &heads,
                                               float (&sums)[S::MS][N][4], float (&total)[S::MS][S::TILES][4])
{
    typedef typename S::T T;
    gemm_operands<S, SUB> o;
    load_no_earlier();
    o.load(stage, w, heads);
    constexpr int SOME = N < 8 / S::MS ? N : 8 / S::MS; /* tiles at a time: eight independent products */
#pragma unroll
    for (int i = 0; i < T::PARTS * (N / SOME); i++) {
        const int part = i / (N / SOME), first = i % (N / SOME) * SOME;
        uint4 x[SOME];
        load_no_earlier();
#pragma unroll
        for (int n = 0; n < SOME; n++) x[n] = o.inputs(stage, w, part, first + n);
#pragma unroll
        for (int n = 0; n < SOME; n++)
#pragma unroll
            for (int m = 0; m < S::MS; m++) {
                float(&sum)[4] = sums[m][first + n];
                if (T::SPAN == 2 && part == 0) sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
                multiply_add<T::BF16>(sum, o.a[m][0], x[n].x, x[n].y);
            }
#pragma unroll
        for (int n = 0; n < SOME; n++)
#pragma unroll
            for (int m = 0; m < S::MS; m++) multiply_add<T::BF16>(sums[m][first + n], o.a[m][1], x[n].z, x[n].w);
    }
    if constexpr (T::SPAN == 2) {
#pragma unroll
        for (int m = 0; m < S::MS; m++)
#pragma unroll
            for (int n = 0; n < N; n++) scale_add(total[m][n], o.factors[m][0], o.factors[m][1], sums[m][n]);
    }
}

/* Minimums times sums of inputs, over all the stage's columns: each half of the warps for half of the rows. Both parts of the sums are
 * multiplied with the same minimums. */
template <typename S> struct gemm_mins {
    uint32_t a[4];
    float first, second;
    __device__ __forceinline__ void load(const uint8_t *stage, const gemm_warp &w, int m)
    {
        const uint8_t *const row = row_at<S>(stage, w, m, 0), *const next = row_at<S>(stage, w, m, 1);
        a[0] = a[2] = S::T::mins(row, w.t), a[1] = a[3] = S::T::mins(next, w.t);
        first = S::T::min_factor(row), second = S::T::min_factor(next);
    }
    static __device__ __forceinline__ uint2 sums(const uint8_t *stage, const gemm_warp &w, int tile)
    {
        return *(const uint2 *)(stage + S::WEIGHT_BYTES + S::X_BYTES + tile * GEMM_SUM_BYTES + (4 * w.g + w.t) * 8);
    }
};

template <typename S, int N>
static __device__ __forceinline__ void add_mins(const uint8_t *stage, const gemm_warp &w, float (&total)[S::MS][S::TILES][4])
{
#pragma unroll
    for (int i = 0; i < S::MS / 2; i++) {
        gemm_mins<S> o;
        float s[N][4] = {};
        o.load(stage, w, w.half * (S::MS / 2) + i);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint2 x = o.sums(stage, w, n);
            multiply_add<false>(s[n], o.a, x.x, x.y);
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (w.half == 0) scale_add(total[i][n], o.first, o.second, s[n]);
            else scale_add(total[S::MS / 2 + i][n], o.first, o.second, s[n]);
        }
    }
}

template <typename S, int N>
static __device__ __forceinline__ void add_stage(const uint8_t *stage, const gemm_warp &w, float (&total)[S::MS][S::TILES][4])
{
    typedef typename S::T T;
    gemm_heads<S> heads;
    float sums[S::MS][N][4] = {};
    heads.load(stage, w);
    add_sub<S, N, 0>(stage, w, heads, sums, total);
    if constexpr (S::SUBS > 2) add_sub<S, N, 1>(stage, w, heads, sums, total);
    if constexpr (S::SUBS > 4) {
        add_sub<S, N, 2>(stage, w, heads, sums, total);
        add_sub<S, N, 3>(stage, w, heads, sums, total);
    }
    if constexpr (T::MINS) {
        load_no_earlier();
        add_mins<S, N>(stage, w, total);
    }
    if constexpr (T::SPAN > 2) {
        load_no_earlier();
#pragma unroll
        for (int m = 0; m < S::MS; m++) {
            const float first = T::half_factor(row_at<S>(stage, w, m, 0)), second = T::half_factor(row_at<S>(stage, w, m, 1));
#pragma unroll
            for (int n = 0; n < N; n++) scale_add(total[m][n], first, second, sums[m][n]);
        }
    }
}

/* May multiply tiles that do not exist: their sums are not read. */
template <typename S>
static __device__ __forceinline__ void add_tiles(const uint8_t *stage, const gemm_warp &w, int n_tiles, float (&total)[S::MS][S::TILES][4])
{
    if constexpr (S::TILES > 1) {
        if (n_tiles == 1) return add_stage<S, 1>(stage, w, total);
    }
    if constexpr (S::TILES > 2) {
        if (n_tiles == 2) return add_stage<S, 2>(stage, w, total);
    }
    add_stage<S, S::TILES>(stage, w, total);
}

/* --- sums --- */

/* Where a row's sums are stored. */
typedef struct gemm_target {
    float *at;
    int64_t step;         /* stride from token to token */
    const float *factors; /* of tokens; NULL: sums are stored without factors */
    float bias;
    int n; /* tokens */
} gemm_target;

GEMM_FN gemm_target target_of(const gemm_call &a, const gemm_run &run, int place, int rows_of_block, int row)
{
    gemm_target to = {NULL, 0, NULL, 0.0f, 0};
    int row_group = run.row_block * (rows_of_block / APR_ROW_GROUP) + row / APR_ROW_GROUP;
    if (row_group >= a.n_row_groups) return to;
    to.n = run.n_tiles * APR_SMALL_GEMM_TILE;
    if (a.groups == NULL && !run.whole) {
        to.at = a.partial + (int64_t)place * (APR_SMALL_GEMM_TILE * a.n_here) * rows_of_block + row;
        to.step = rows_of_block;
        return to;
    }
    const int part = part_of(a, &row_group), in_part = row_group * APR_ROW_GROUP + row % APR_ROW_GROUP;
    const gemm_part &p = a.parts[part];
    const int64_t slot = (int64_t)run.first_tile * APR_SMALL_GEMM_TILE;
    to.step = (int64_t)p.n_row_groups * APR_ROW_GROUP;
    to.at = p.out + (run.split * a.n_slots + slot) * to.step + in_part;
    if (a.groups != NULL) return to;
    to.factors = a.factors + slot;
    to.bias = p.bias != NULL ? read_now(p.bias + in_part) : 0.0f;
    if (a.n_tokens - slot < to.n) to.n = (int)(a.n_tokens - slot);
    return to;
}

GEMM_FN float factor_of(const gemm_target &to, int token)
{
    return to.factors != NULL && token < to.n ? read_now(to.factors + token) : 1.0f;
}
GEMM_FN void store_sum(const gemm_target &to, int token, float sum, float factor)
{
    if (token < to.n) to.at[token * to.step] = to.factors != NULL ? fmaf(sum, factor, to.bias) : sum;
}

/* Row and token of a lane's sum i. */
GEMM_FN int sum_row(const gemm_warp &w, int m, int i) { return w.row + 16 * m + 8 * (i / 2) + w.g; }
GEMM_FN int sum_token(const gemm_warp &w, int tile, int i) { return APR_SMALL_GEMM_TILE * tile + 2 * w.t + i % 2; }

/* Ends a run: adds both halves' sums in the shared memory `buffer`, which must be free, and stores them. All threads take part. */
template <typename S>
static __device__ __forceinline__ void store_run(const gemm_call &a, const gemm_run &run, int place, const gemm_warp &w, float *buffer,
                                                 float (&total)[S::MS][S::TILES][4])
{
    __syncthreads();
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        if (w.half == half)
#pragma unroll
            for (int m = 0; m < S::MS; m++)
#pragma unroll
                for (int n = 0; n < S::TILES; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float *const at = buffer + sum_token(w, n, i) * S::SUM_PITCH + sum_row(w, m, i);
                        *at = half == 0 ? total[m][n][i] : *at + total[m][n][i];
                        total[m][n][i] = 0.0f;
                    }
        __syncthreads();
    }
    const int row = (int)threadIdx.x % S::ROWS;
    const gemm_target to = target_of(a, run, place, S::ROWS, row);
    constexpr int STEP = S::THREADS / S::ROWS;
    for (int first = (int)threadIdx.x / S::ROWS; first < to.n; first += GEMM_AT_ONCE * STEP) {
        float factors[GEMM_AT_ONCE];
#pragma unroll
        for (int i = 0; i < GEMM_AT_ONCE; i++) factors[i] = factor_of(to, first + i * STEP);
#pragma unroll
        for (int i = 0; i < GEMM_AT_ONCE; i++)
            if (first + i * STEP < to.n) store_sum(to, first + i * STEP, buffer[(first + i * STEP) * S::SUM_PITCH + row], factors[i]);
    }
}

/* A fix-up: thread blocks [first, last] have partial sums of a row block. If first == last there is nothing to add. */
typedef struct gemm_fixup {
    int row_block, first, last, first_place;
} gemm_fixup;

/* Fix-up x: one for each row block, or, if there are more row blocks than thread blocks, for each boundary between thread blocks. */
GEMM_INDEX bool fixup_by_boundary(const gemm_call &a, int n_blocks) { return a.n_row_blocks >= n_blocks; }
GEMM_INDEX int fixups_of(const gemm_call &a, int n_blocks) { return fixup_by_boundary(a, n_blocks) ? n_blocks - 1 : a.n_row_blocks; }
GEMM_FN gemm_fixup fixup_of(const gemm_call &a, int n_blocks, int x)
{
    const bool by_boundary = fixup_by_boundary(a, n_blocks);
    const int n_all = a.n_row_blocks * a.n_stages, row_block = by_boundary ? gemm_first(n_all, n_blocks, x + 1) / a.n_stages : x;
    const int at = row_block * a.n_stages;
    gemm_fixup j;
    j.row_block = row_block;
    j.first = gemm_block_of(n_all, n_blocks, at), j.last = gemm_block_of(n_all, n_blocks, at + a.n_stages - 1);
    j.first_place = gemm_place(n_all, n_blocks, a.n_stages, j.first, row_block);
    if (by_boundary && j.first != x) j.last = j.first; /* no boundary within the row block, or not its first one */
    return j;
}

/* Adds a row's partial sums in the order of the thread blocks. All but the first block begin in this row block, so use their first
 * place. */
GEMM_FN float fixup_sum(const gemm_call &a, const gemm_fixup &j, int rows_of_block, int row, int token)
{
    const int64_t place_step = (int64_t)(APR_SMALL_GEMM_TILE * a.n_here) * rows_of_block, in_place = (int64_t)token * rows_of_block + row;
    float sum = 0.0f;
    for (int base = j.first; base <= j.last; base += GEMM_AT_ONCE) {
        float v[GEMM_AT_ONCE];
        for (int i = 0; i < GEMM_AT_ONCE; i++) {
            const int place = base + i == j.first ? j.first_place : 2 * (base + i);
            v[i] = base + i <= j.last ? read_now(a.partial + place * place_step + in_place) : 0.0f;
        }
        for (int i = 0; i < GEMM_AT_ONCE; i++) sum += v[i];
    }
    return sum;
}

/* --- the kernel --- */

/* A thread block's share and runs, in shared memory to save registers. */
typedef struct gemm_state {
    gemm_share share;
    gemm_run runs[GEMM_RUNS]; /* run r at r % GEMM_RUNS, written before its first stage is loaded */
} gemm_state;

/* The loader: the next stage of a run to copy. */
template <typename S> struct gemm_loader {
    const uint8_t *weights[S::WARP_ROW_GROUPS];
    int run, stage;
};

/* Read anew each time, so that values derived from it are not kept in registers from stage to stage. */
static __device__ __forceinline__ int thread_here(void) { return ptx_thread_x(); }

/* All threads see the run after the next barrier. */
template <typename S> static __device__ __forceinline__ void begin_run(const gemm_call &a, gemm_state *state, gemm_loader<S> &k)
{
    const gemm_run run = run_of(a, k.run, state->share);
    const int thread = thread_here();
    k.stage = run.stage;
#pragma unroll
    for (int i = 0; i < S::WARP_ROW_GROUPS; i++) k.weights[i] = weight_of<S>(a, run, thread / 32 * S::WARP_ROW_GROUPS + i, thread % 32);
    if (thread == 0) state->runs[k.run % GEMM_RUNS] = run;
}

template <typename S, bool WEIGHTS, bool INPUTS>
static __device__ __forceinline__ void load_stage(const gemm_call &a, gemm_state *state, uint8_t *slot, gemm_loader<S> &k)
{
    const auto copy = [&](int to, const uint8_t *from) { copy_16(slot + to, from, true); };
    if (k.run >= state->share.last) return;
    const gemm_run &run = state->runs[k.run % GEMM_RUNS];
    const int thread = thread_here();
#pragma unroll
    for (int i = 0; i < S::WARP_ROW_GROUPS; i++) {
        if (k.weights[i] == NULL) continue;
        if (WEIGHTS) for_each_weight<S>(a, copies_of<S>(a, thread / 32 * S::WARP_ROW_GROUPS + i, thread % 32), k.weights[i], copy);
        k.weights[i] += stage_step<S>(a);
    }
    if (INPUTS) for_each_input<S>(a, k.stage, run.first_tile, run.n_tiles, thread, copy);
    if (++k.stage == run.end && ++k.run < state->share.last) begin_run<S>(a, state, k);
}

static __device__ __forceinline__ void await_stages(int later)
{
    if (later >= 2) await_copies<2>();
    else if (later == 1) await_copies<1>();
    else await_copies<0>();
}

template <apr_dtype D, int TILES, int ROWS, int MS>
static __global__ void __launch_bounds__(gemm_stage<D, TILES, ROWS, MS>::THREADS, 1) k_small_gemm(const __grid_constant__ gemm_call a)
{
    if constexpr (GEMM_ROWS_HERE != 0 && ROWS != GEMM_ROWS_HERE) __trap(); /* not launched: the host chooses with the same function */
    else {
        typedef gemm_stage<D, TILES, ROWS, MS> S;
        extern __shared__ __align__(128) uint8_t ring[];
        __shared__ gemm_state state;

        pdl_trigger();
        if (a.groups != NULL) pdl_wait();
        if (threadIdx.x == 0) state.share = share_of(a, (int)blockIdx.x, (int)gridDim.x);
        __syncthreads();
        if (state.share.first >= state.share.last) return pdl_wait();
        gemm_loader<S> k;
        k.run = state.share.first;
        begin_run<S>(a, &state, k);
        __syncthreads();
        gemm_loader<S> ahead = k;
        for (int i = 0; i + 1 < a.depth; i++) {
            load_stage<S, true, false>(a, &state, ring + i * S::BYTES, ahead);
            __syncthreads();
        }
        pdl_wait();
        for (int i = 0; i + 1 < a.depth; i++) {
            load_stage<S, false, true>(a, &state, ring + i * S::BYTES, k);
            end_copies(); /* also an empty group, since groups are counted */
        }

        float total[MS][TILES][4] = {};
        int n_run = state.share.first, at = 0, left = state.runs[n_run % GEMM_RUNS].end - state.runs[n_run % GEMM_RUNS].stage;
        for (;;) {
            const gemm_run &run = state.runs[n_run % GEMM_RUNS];
            await_stages(a.depth - 2);
            __syncthreads(); /* the stage has arrived, and all threads have read the previous slot */
            load_stage<S, true, true>(a, &state, ring + (at == 0 ? (a.depth - 1) * S::BYTES : at - S::BYTES), k);
            end_copies();
            const gemm_warp w = warp_of<S>(thread_here());
            uint8_t *const stage = ring + at;
            add_tiles<S>(stage, w, run.n_tiles, total);
            at += S::BYTES;
            if (at == a.depth * S::BYTES) at = 0;
            if (--left > 0) continue;
            store_run<S>(a, run, 2 * (int)blockIdx.x + (n_run != state.share.first), w, (float *)stage, total);
            if (++n_run == state.share.last) break;
            left = state.runs[n_run % GEMM_RUNS].end - state.runs[n_run % GEMM_RUNS].stage;
        }
    }
}

/* --- launching --- */

/* cudaErrorNotSupported: no room for two stages. */
template <apr_dtype D, int TILES, int ROWS, int MS>
static cudaError_t start_gemm(const gemm_call &call, unsigned n_blocks, int shared_bytes, cudaStream_t stream)
{
    typedef gemm_stage<D, TILES, ROWS, MS> S;
    void (*const kernel)(gemm_call) = k_small_gemm<D, TILES, ROWS, MS>;
    gemm_call a = call;
    const int fits = (shared_bytes - GEMM_SHARED_LEFT) / S::BYTES;
    a.depth = fits < a.depth ? fits : a.depth;
    if (a.depth < 2) return cudaErrorNotSupported;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.depth * S::BYTES);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_pdl(kernel, n_blocks, S::THREADS, (size_t)(a.depth * S::BYTES), stream, a);
}

/* What small_gemm.cu needs of a type. */
typedef cudaError_t gemm_start(const gemm_call &call, unsigned n_blocks, int shared_bytes, cudaStream_t stream);
typedef struct gemm_kernels {
    apr_dtype dtype;
    int columns;
    bool rows, is_bf16;
    const void *any; /* one of the kernels, to query its compiled architecture */
    /* LARGE (0) and SMALL (1) row blocks, for 1, 2 and 4 tiles */
    gemm_start *start[2][3];
    int stage_bytes[2][3];
} gemm_kernels;

/* Warps of large row blocks have 64 rows, which halves the reads of inputs from shared memory. */
template <apr_dtype D> static gemm_kernels gemm_kernels_of(void)
{
    enum { L = GEMM_LARGE, S = GEMM_SMALL, L_MS = 4, S_MS = 2 };
    return gemm_kernels{D,
                        gemm_type<D>::COLUMNS,
                        gemm_type<D>::ROWS,
                        gemm_type<D>::BF16,
                        (const void *)k_small_gemm<D, 1, L, L_MS>,
                        {{start_gemm<D, 1, L, L_MS>, start_gemm<D, 2, L, L_MS>, start_gemm<D, 4, L, L_MS>},
                         {start_gemm<D, 1, S, S_MS>, start_gemm<D, 2, S, S_MS>, start_gemm<D, 4, S, S_MS>}},
                        {{gemm_stage<D, 1, L, L_MS>::BYTES, gemm_stage<D, 2, L, L_MS>::BYTES, gemm_stage<D, 4, L, L_MS>::BYTES},
                         {gemm_stage<D, 1, S, S_MS>::BYTES, gemm_stage<D, 2, S, S_MS>::BYTES, gemm_stage<D, 4, S, S_MS>::BYTES}}};
}

/* The WGMMA kernels (small_gemm_wgmma.cuh) for 1, 2 and 4 tiles, with LARGE row blocks; NULL: the current device or its code has none. They
 * always multiply all tiles, including those that a group does not have. */
typedef struct gemm_wgmma {
    apr_dtype dtype;
    const void *any;
    gemm_start *start[3], *start_experts[3];
} gemm_wgmma;
const gemm_wgmma *apr_small_gemm_wgmma(apr_dtype dtype);

/* small_gemm_k.cu, small_gemm_blocks.cu, small_gemm_plain.cu; NULL: the type is not in that file. */
const gemm_kernels *apr_small_gemm_k_kernels(apr_dtype dtype);
const gemm_kernels *apr_small_gemm_blocks_kernels(apr_dtype dtype);
const gemm_kernels *apr_small_gemm_plain_kernels(apr_dtype dtype);

#endif
