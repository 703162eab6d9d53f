/* decode_gemv_kernel.cuh - the decode GEMV kernel (decode_gemv.cuh): each warp has a ring of weight tiles, filled before the activations are ready.
 *
 * A thread block's tiles, row group by row group, are divided among its warps in runs of equal length. A warp's ring holds its next tiles
 * on their way from memory. Partial sums of a row group that several warps share are added in the order of the warps. Two thread blocks fit
 * a multiprocessor, so that the next kernel's weights arrive while this one ends. */
#ifndef APR_KERNELS_CUDA_DECODE_GEMV_KERNEL_CUH
#define APR_KERNELS_CUDA_DECODE_GEMV_KERNEL_CUH

#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/gemv/decode_gemv.cuh"
#include "kernels/cuda/gemv/decode_gemv_dot.cuh"

enum {
    WARPS = 12,
    THREADS = 32 * WARPS,
    RESERVED_BYTES = 2048,  /* of a block's shared memory: used by CUDA and by declared arrays */
    SMALL_BYTES = 98 << 10, /* of a block's shared memory; see lay_out */
    MIN_DEPTH = 2,
    MAX_DEPTH = 4,
    IN_FLIGHT = 4, /* loads of a thread that are in flight together */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    RESIDENT = 1, /* without PDL no two kernels overlap: one block may use all registers */
#else
    RESIDENT = 2,
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
    ROUTED_RESIDENT = 1, /* with half of the registers the compiler spills there */
#else
    ROUTED_RESIDENT = RESIDENT,
#endif
};

/* Division by a number that all threads share, as a multiplication: exact where the product of both numbers is less than 2^32. */
typedef struct fast_divisor {
    int by;
    uint32_t inverse; /* 2^32 / by, rounded up; not used for 1 */
} fast_divisor;

static inline fast_divisor fast_divisor_of(int by)
{
    return fast_divisor{by, (uint32_t)(((1ull << 32) + (unsigned)by - 1) / (unsigned)by)};
}

static __device__ __forceinline__ int fast_divide(int x, const fast_divisor &d)
{
    return d.by == 1 ? x : (int)__umulhi((uint32_t)x, d.inverse);
}

/* What a kernel computes: sums of rows, the GLU of two matrices, or one of the two steps of a token's experts: first their GLUs, then,
 * concurrently, the weighted sum of down. */
typedef enum { GEMV_SUMS, GEMV_GLU, GEMV_EXPERT_GLU, GEMV_EXPERT_SUMS } decode_gemv_kind;
static constexpr __host__ __device__ bool is_glu(decode_gemv_kind kind) { return kind == GEMV_GLU || kind == GEMV_EXPERT_GLU; }
static constexpr __host__ __device__ bool of_experts(decode_gemv_kind kind) { return kind == GEMV_EXPERT_GLU || kind == GEMV_EXPERT_SUMS; }

/* A part of a call (apr_decode_gemv_part) as the kernel sees it. */
typedef struct decode_gemv_part {
    const uint8_t *weight;
    const float *bias;
    float *out;
    int n_row_groups;
} decode_gemv_part;

/* Routed experts. Their matrices are consecutive in a stack. Rank k of a token's choice is expert routes[k] with weight routes[n_used
 * + k]. */
typedef struct decode_gemv_routed {
    const float *routes;
    int n_used, n_row_groups; /* row groups of one expert's matrix */
    fast_divisor used, row_groups;
    int64_t matrix_bytes;
    int n_groups, padded_groups; /* groups of 16 inputs of one expert, without and with the padding of its row */
    int padding;                 /* GLU: padding columns between one expert's activations and the next one's */
} decode_gemv_routed;

typedef struct decode_gemv_call {
    apr_epilogue epilogue;
    int n_parts, n_squares;
    decode_gemv_part parts[APR_DECODE_GEMV_PARTS];
    int n_in;
    const uint8_t *activations;
    const float *squares, *residual, *gain;
    float eps, gain_offset;
    apr_glu_shape glu;
    uint8_t *activations_out;
    float *out_squares;
    decode_gemv_routed routed;
    bool has_concurrent, is_concurrent,
        is_first; /* see decode_gemv_args.h. Experts: the two steps are such a pair, and routes are ready when the second one begins */
    bool inputs_ready_early; /* experts: the first step's input, or the second one's residual, is ready when the kernel begins */
} decode_gemv_call;

/* Layout of a block's shared memory: rings, activations, rows' extras, sums of row groups that warps share. */
typedef struct decode_gemv_layout {
    int each, more;          /* row groups of a block, and how many of the first blocks have one more */
    int depth;               /* tiles in a ring */
    int slots;               /* row groups that a warp may have a part of */
    int n_tiles;             /* tiles across a row group's columns */
    int n_run;               /* of these, how many are contiguous; with experts a row group is a run of each of them */
    fast_divisor tiles, run; /* divisors by n_tiles and n_run */
    int x_bytes;
    int n_extras;       /* rows of a block whose extras are prefetched */
    bool excludes_next; /* no block of the next kernel fits next to it */
} decode_gemv_layout;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define HAS_BULK_COPIES false
#else
#define HAS_BULK_COPIES true
#endif

/* A tile is contiguous in memory, row after row. Rows of plain numbers stay as stored: a tile of them is 16 pieces of 128 bytes. These
 * would all begin in the same bank, so the 16-byte chunks of a row are permuted (XOR) by the row's number.
 *
 * WHOLE: a tile is one bulk copy issued by one lane, and each slot of the ring has an mbarrier that counts its bytes. Otherwise all lanes
 * copy 16 bytes at a time. Which is faster was measured for each type (NOTES.md). */
template <apr_dtype D> struct decode_gemv_ring {
    static constexpr int BYTES = APR_ROW_GROUP * decode_gemv_type<D>::BYTES, PIECES = BYTES / 16;
    static constexpr bool UNTILED = decode_gemv_type<D>::BYTES == 128; /* rows */
    static constexpr bool WHOLE = HAS_BULK_COPIES && (D == APR_Q4_K || D == APR_Q6_K);
    static constexpr bool PADDED = D == APR_MXFP4 || D == APR_Q8_0; /* rows of experts may end within a tile, since a block is smaller */
    static_assert(BYTES % 16 == 0, "tiles are copied by 16 bytes");
};

static __device__ __forceinline__ void copy_piece(uint8_t *to, const uint8_t *from)
{
#if __CUDA_ARCH__ >= 800
    ptx_copy_16(to, from);
#endif
}
static __device__ __forceinline__ void close_group(void)
{
#if __CUDA_ARCH__ >= 800
    ptx_close_copies();
#endif
}
/* Waits until all but this thread's latest `left` groups of copies have arrived. */
static __device__ __forceinline__ void wait_for_groups(int left)
{
#if __CUDA_ARCH__ >= 800
    if (left >= 2) {
        if (left >= 3) ptx_wait_for_copies<3>();
        else ptx_wait_for_copies<2>();
    } else {
        if (left >= 1) ptx_wait_for_copies<1>();
        else ptx_wait_for_copies<0>();
    }
#endif
}

/* Row groups of a call. GLU: pairs of one of gate and one of up. */
template <decode_gemv_kind KIND> static __host__ __device__ inline int row_groups_of(const decode_gemv_call &a)
{
    if (is_glu(KIND)) return a.parts[0].n_row_groups;
    int n = 0;
    for (int i = 0; i < a.n_parts; i++) n += a.parts[i].n_row_groups;
    return n;
}

/* The first tile of a row group. */
template <decode_gemv_kind KIND>
static __device__ __forceinline__ const uint8_t *first_tile_of(const decode_gemv_call &a, int64_t row_group_bytes, int row_group)
{
    int part = 0;
    if (is_glu(KIND)) part = row_group % 2, row_group /= 2;
    else
        while (part + 1 < a.n_parts && row_group >= a.parts[part].n_row_groups) row_group -= a.parts[part++].n_row_groups;
    return a.parts[part].weight + row_group * row_group_bytes;
}

/* The start of a run. GLU of experts: gate and up have the row groups of rank 0, then those of rank 1, ... Sums of experts: each row group
 * has a run for each rank. Lane k holds the expert `chosen` for rank k. All lanes take part. */
template <decode_gemv_kind KIND>
static __device__ __forceinline__ const uint8_t *run_at(const decode_gemv_call &a, int64_t run_bytes, int run, int chosen)
{
    if (!of_experts(KIND)) return first_tile_of<KIND>(a, run_bytes, run);
    const int of = is_glu(KIND) ? run / 2 : run, by = is_glu(KIND) ? a.routed.n_row_groups : a.routed.n_used;
    const int quotient = fast_divide(of, is_glu(KIND) ? a.routed.row_groups : a.routed.used), rest = of - quotient * by;
    const int rank = is_glu(KIND) ? quotient : rest, row_group = is_glu(KIND) ? rest : quotient;
    const int expert = __shfl_sync(0xffffffffu, chosen, rank);
    return a.parts[is_glu(KIND) ? run % 2 : 0].weight + expert * a.routed.matrix_bytes + row_group * run_bytes;
}

/* Issues the copy of a tile, by all lanes or by the first one. */
template <apr_dtype D> static __device__ __forceinline__ void copy_tile(const uint8_t *tile, int row_bytes, uint8_t *to, uint64_t *arrived)
{
    typedef decode_gemv_ring<D> R;
    const int lane = (int)threadIdx.x % 32;
    if constexpr (R::WHOLE) {
        if (lane > 0) return;
        ptx_arrive_with_bytes(arrived, R::BYTES);
        ptx_copy_bulk_once(to, tile, R::BYTES, arrived);
        return;
    }
    if (R::UNTILED) tile += lane / 8 * row_bytes + lane % 8 * 16;
    else tile += 16 * lane;
#pragma unroll
    for (int i = 0; i < (R::PIECES + 31) / 32; i++) {
        const int at = lane + 32 * i, there = R::UNTILED ? at ^ (at / 8 % 8) : at;
        if (32 * i + 31 < R::PIECES || at < R::PIECES) copy_piece(to + 16 * there, tile);
        tile += R::UNTILED ? 4 * row_bytes : 512;
    }
}

/* What a row's sum is finished with; zero where there is none. */
typedef struct __align__(16) epilogue_extras
{
    float bias, other_bias; /* other_bias: of GLU's second part */
    float residual, gain;
}
epilogue_extras;

/* The first and the last warp that have a part of a row group. */
typedef struct row_group_share {
    uint8_t first, last;
} row_group_share;

/* What the epilogue needs. */
typedef struct decode_gemv_epilogue {
    float factor;
    const float *sums;             /* [WARPS][slots][APR_ROW_GROUP] */
    const row_group_share *shares; /* [row groups] */
    const int *begins;             /* [WARPS]: the first row group of each warp */
    int slots;
    const float *weights;          /* weights of a token's experts, by rank */
    const epilogue_extras *extras; /* of the first rows, prefetched while weights were multiplied */
    int n_extras;
} decode_gemv_epilogue;

/* A row's sum: the partial sums of all warps that had a part of its row group, in their order. For all but the first warp it is their first
 * row group, and warps between that have no tiles at all hold zeros there. */
static __device__ __forceinline__ float row_sum(const decode_gemv_epilogue &f, int row_group, int row)
{
    const row_group_share share = f.shares[row_group];
    const int step = f.slots * APR_ROW_GROUP;
    const float *from = f.sums + share.first * step + row;
    float sum = from[(row_group - f.begins[share.first]) * APR_ROW_GROUP];
#pragma unroll 4
    for (int left = share.last - share.first; left > 0; left--) sum += *(from += step);
    return sum * f.factor;
}

/* Records which warps share which row group: a warp writes itself for the row groups whose first or last tile it has. */
static __device__ __forceinline__ void record_shares(int begin, int end, const fast_divisor &tiles, row_group_share *shares, int *begins)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_tiles = tiles.by;
    if (end <= begin) return;
    const int first = fast_divide(begin, tiles), last = fast_divide(end - 1, tiles);
    if (lane == 0) begins[warp] = first;
    for (int row_group = first + lane; row_group <= last; row_group += 32) {
        if (row_group * n_tiles >= begin) shares[row_group].first = (uint8_t)warp;
        if ((row_group + 1) * n_tiles <= end) shares[row_group].last = (uint8_t)warp;
    }
}

/* The bias of row r of a part. Sums of experts: their biases times their weights. GLU of experts: the bias of the expert that has the
 * row. */
template <decode_gemv_kind KIND> static __device__ __forceinline__ float bias_of(const decode_gemv_call &a, int part, int64_t r, int rank)
{
    const float *const bias = a.parts[part].bias, *const routes = a.routed.routes;
    if (bias == NULL) return 0.0f;
    if (!of_experts(KIND)) return __ldg(bias + r);
    const int64_t n_rows = (int64_t)a.routed.n_row_groups * APR_ROW_GROUP;
    if (is_glu(KIND)) return __ldg(bias + (int64_t)__ldcg(routes + rank) * n_rows + (r - rank * n_rows));
    float sum = 0.0f;
    for (int k = 0; k < a.routed.n_used; k++)
        sum = fmaf(__ldcg(routes + a.routed.n_used + k), __ldg(bias + (int64_t)__ldcg(routes + k) * n_rows + r), sum);
    return sum;
}

/* The position of a row: its part, and with experts its rank. */
typedef struct part_row {
    int part, row_group; /* within its part */
    int rank;
    int64_t r; /* within its part */
} part_row;

template <decode_gemv_kind KIND> static __device__ __forceinline__ part_row row_at(const decode_gemv_call &a, int row_group, int row)
{
    part_row at = {0, row_group, 0, 0};
    if (is_glu(KIND)) at.rank = of_experts(KIND) ? fast_divide(at.row_group, a.routed.row_groups) : 0;
    else
        while (at.part + 1 < a.n_parts && at.row_group >= a.parts[at.part].n_row_groups) at.row_group -= a.parts[at.part++].n_row_groups;
    at.r = (int64_t)at.row_group * APR_ROW_GROUP + row;
    return at;
}

/* All but the residual, which previous kernels may not have written yet. */
template <decode_gemv_kind KIND>
static __device__ __forceinline__ epilogue_extras constant_extras_of(const decode_gemv_call &a, const part_row &at)
{
    epilogue_extras e = {bias_of<KIND>(a, at.part, at.r, at.rank), 0.0f, 0.0f, 0.0f};
    if (is_glu(KIND)) e.other_bias = bias_of<KIND>(a, 1, at.r, at.rank);
    if (a.activations_out != NULL && a.gain != NULL) e.gain = __ldg(a.gain + at.r);
    return e;
}

template <decode_gemv_kind KIND> static __device__ __forceinline__ epilogue_extras extras_of(const decode_gemv_call &a, const part_row &at)
{
    epilogue_extras e = constant_extras_of<KIND>(a, at);
    if (!is_glu(KIND) && a.epilogue == APR_EPILOGUE_ADD) e.residual = __ldcg(a.residual + at.r);
    return e;
}

/* The epilogue: one thread for each row of the block's row groups. A half warp has 16 rows, which are a group of activations. */
template <decode_gemv_kind KIND>
static __device__ __forceinline__ void write_rows(const decode_gemv_call &a, const decode_gemv_epilogue &f, int first, int last)
{
    const int n = (last - first) * APR_ROW_GROUP;
    for (int base = 0; base < n; base += THREADS) {
        const int i = base + (int)threadIdx.x, row_group = i / APR_ROW_GROUP, row = i % APR_ROW_GROUP;
        const bool on = i < n;
        const part_row at = row_at<KIND>(a, on ? first + row_group : first, row);
        epilogue_extras e = {};
        float value = 0.0f;
        if (on) e = i < f.n_extras ? f.extras[i] : extras_of<KIND>(a, at);
        if (is_glu(KIND) && on) {
            value = apr_glu_of(&a.glu, row_sum(f, 2 * row_group, row) + e.bias, row_sum(f, 2 * row_group + 1, row) + e.other_bias);
            if (of_experts(KIND)) value *= f.weights[at.rank];
        } else if (on) {
            value = row_sum(f, row_group, row) + e.bias;
            if (a.epilogue == APR_EPILOGUE_ADD) value += e.residual;
        }
        if (on && a.parts[at.part].out != NULL) a.parts[at.part].out[at.r] = value;
        const float next = a.gain != NULL ? value * (e.gain + a.gain_offset) : value;
        float squares = value * value, most = on ? fabsf(next) : 0.0f;
#pragma unroll
        for (int lanes = APR_ROW_GROUP / 2; lanes > 0; lanes /= 2) { /* half_warp_sum and half_warp_max, interleaved */
            squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
        }
        if (a.out_squares != NULL && on && row == 0) a.out_squares[at.row_group] = squares;
        if (a.activations_out != NULL)
            store_i16_of(a.activations_out, at.r + (of_experts(KIND) ? at.rank * a.routed.padding : 0), on, next, most);
    }
}

/* A lane's part of the sum of the input groups' squares, four at a time: n_in is a multiple of APR_DECODE_GEMV_COLUMNS. */
static __device__ __forceinline__ float squares_of_lane(const decode_gemv_call &a)
{
    const float4 *const squares = (const float4 *)a.squares;
    float sum = 0.0f;
    for (int base = (int)threadIdx.x % 32; base < a.n_squares / 4; base += 32 * IN_FLIGHT) {
        float4 v[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            v[k] = base + 32 * k < a.n_squares / 4 ? __ldcg(squares + base + 32 * k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    return sum;
}

/* 1 / RMS of the inputs, by the warp that has the fewest tiles: it is needed in the epilogue. */
static __device__ __forceinline__ void put_factor(const decode_gemv_call &a, float squares, float *factor)
{
    if (threadIdx.x >= 32) return;
    const float value = a.squares == NULL ? 1.0f : rsqrtf(warp_sum(squares) / (float)a.n_in + a.eps);
    if (threadIdx.x == 0) *factor = value;
}

/* Adds the four lanes' sums of each row, stores them, and resets the totals. */
template <apr_dtype D> static __device__ __forceinline__ void put_sums(const decode_gemv_lane &l, float (&total)[2], float *sums)
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const float sum = quad_sum(total[k]);
        if (l.t == 0) sums[decode_gemv_type<D>::row_of(l.g) + decode_gemv_type<D>::ROW_STEP * k] = sum;
        total[k] = 0.0f;
    }
}

/* Loads activations for shared memory (layout: decode_gemv_dot.cuh): as many 16-byte pieces as a thread has in flight at once. */
static __device__ __forceinline__ void load_activations(const uint8_t *from, int n_pieces, int first, uint4 (&pieces)[IN_FLIGHT])
{
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; k++)
        if (first + k * THREADS < n_pieces) pieces[k] = __ldcg((const uint4 *)from + first + k * THREADS);
}
/* Piece i of the activations, with zeros for the padding of a row, which no kernel wrote. It has the bytes of one group, or one number of
 * each of four groups. */
static __device__ __forceinline__ uint4 with_zeros(const decode_gemv_routed &r, int i, uint4 v)
{
    enum { GROUPS = I16_TILE / I16_GROUP };
    const int piece = i % I16_TILE_PIECES, step = 16 * piece < I16_SCALES_AT ? 0 : 1;
    const int group = (i / I16_TILE_PIECES * GROUPS + (step == 0 ? piece % GROUPS : piece % 4 * 4)) % r.padded_groups;
    return make_uint4(group < r.n_groups ? v.x : 0, group + step < r.n_groups ? v.y : 0, group + 2 * step < r.n_groups ? v.z : 0,
                      group + 3 * step < r.n_groups ? v.w : 0);
}
template <apr_dtype D, bool PADDED>
static __device__ __forceinline__ void store_activations(const decode_gemv_call &a, const uint4 (&pieces)[IN_FLIGHT], int n_pieces,
                                                         int first, uint8_t *x)
{
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; k++) {
        const int i = first + k * THREADS, tile = i / I16_TILE_PIECES, piece = i % I16_TILE_PIECES;
        const bool is_bytes = 16 * piece < I16_SCALES_AT;
        if (i >= n_pieces) continue;
        const uint4 v = PADDED ? with_zeros(a.routed, i, pieces[k]) : pieces[k];
        ((uint4 *)x)[tile * I16_TILE_PIECES + activation_piece(piece)] = is_bytes ? decode_gemv_type<D>::arranged(v) : v;
    }
}

/* Copies all activations to shared memory. One warp also loads their sums of squares at the same time, and returns its lanes' parts: they
 * are in a few cache lines, and all warps of all blocks would read these at once. */
template <apr_dtype D, bool PADDED>
static __device__ __forceinline__ float load_inputs_and_squares(const decode_gemv_call &a, int n_pieces, uint8_t *x, bool has_squares)
{
    const int thread = (int)threadIdx.x;
    float squares = 0.0f;
    uint4 pieces[IN_FLIGHT];
    load_activations(a.activations, n_pieces, thread, pieces);
    if (has_squares) squares = squares_of_lane(a);
    store_activations<D, PADDED>(a, pieces, n_pieces, thread, x);
    for (int first = thread + IN_FLIGHT * THREADS; first < n_pieces; first += IN_FLIGHT * THREADS) {
        load_activations(a.activations, n_pieces, first, pieces);
        store_activations<D, PADDED>(a, pieces, n_pieces, first, x);
    }
    return squares;
}

template <apr_dtype D, decode_gemv_kind KIND>
static __device__ __forceinline__ float load_all_inputs(const decode_gemv_call &a, const decode_gemv_layout &layout, uint8_t *x)
{
    return load_inputs_and_squares < D,
           of_experts(KIND) && decode_gemv_ring<D>::PADDED > (a, layout.x_bytes / 16, x, threadIdx.x < 32 && a.squares != NULL);
}

/* Where a weight tile's activations are: the byte offset of their tile, and the column in it. */
typedef struct activation_place {
    int tile, column;
} activation_place;

template <apr_dtype D> static __device__ __forceinline__ activation_place place_of(int tile)
{
    const int column = tile * decode_gemv_type<D>::COLUMNS;
    return activation_place{column / I16_TILE * I16_TILE_BYTES, column % I16_TILE};
}

template <apr_dtype D> static __device__ __forceinline__ void next_place(activation_place &at)
{
    at.column += decode_gemv_type<D>::COLUMNS;
    if (at.column < I16_TILE) return;
    at.tile += I16_TILE_BYTES;
    at.column = 0;
}

/* A warp's ring, and the barriers of its slots where copies are WHOLE. */
typedef struct ring_slots {
    uint8_t *ring;
    uint64_t *arrived; /* [depth] */
} ring_slots;

/* A warp's loader: the next tile to copy. */
typedef struct weight_loader {
    const uint8_t *next;
    int end;       /* one past its last tile */
    int run, left; /* the run, and its tiles that have not been requested */
    int chosen;    /* see run_at */
} weight_loader;

/* weights: [APR_DECODE_GEMV_MAX_EXPERTS], of the chosen experts. */
template <apr_dtype D, decode_gemv_kind KIND>
static __device__ __forceinline__ weight_loader loader_of(const decode_gemv_call &a, const decode_gemv_layout &layout, int first_run,
                                                          int begin, int end, float *weights)
{
    const int lane = (int)threadIdx.x % 32, n_run = of_experts(KIND) ? layout.n_run : layout.n_tiles;
    const int before = fast_divide(begin, of_experts(KIND) ? layout.run : layout.tiles), rest = begin - before * n_run;
    weight_loader k = {NULL, end, first_run + before, n_run - rest, 0};
    if (of_experts(KIND)) { /* tiles can be requested once the experts are known */
        if (KIND == GEMV_EXPERT_GLU) pdl_wait();
        const float weight =
            KIND == GEMV_EXPERT_GLU && threadIdx.x < 32 && lane < a.routed.n_used ? __ldcg(a.routed.routes + a.routed.n_used + lane) : 0.0f;
        if (lane < a.routed.n_used) k.chosen = (int)__ldcg(a.routed.routes + lane);
        if (KIND == GEMV_EXPERT_GLU && threadIdx.x < 32) weights[lane] = weight; /* before the copies of weights, which would delay them */
    }
    const int step = decode_gemv_ring<D>::UNTILED ? decode_gemv_type<D>::BYTES : decode_gemv_ring<D>::BYTES;
    k.next = run_at<KIND>(a, (int64_t)n_run * decode_gemv_ring<D>::BYTES, k.run, k.chosen) + rest * step;
    return k;
}

/* Requests tile i, into slot `at` of the ring. */
template <apr_dtype D, decode_gemv_kind KIND>
static __device__ __forceinline__ void load_next_tile(const decode_gemv_call &a, const decode_gemv_layout &layout, const ring_slots &places,
                                                      weight_loader &k, int i, int at)
{
    typedef decode_gemv_ring<D> R;
    const int n_run = of_experts(KIND) ? layout.n_run : layout.n_tiles;
    if (i < k.end) {
        copy_tile<D>(k.next, layout.n_tiles * decode_gemv_type<D>::BYTES, places.ring + at * R::BYTES, places.arrived + at);
        k.next += R::UNTILED ? decode_gemv_type<D>::BYTES : R::BYTES;
        if (--k.left == 0 && i + 1 < k.end) {
            k.left = n_run;
            k.next = run_at<KIND>(a, (int64_t)n_run * R::BYTES, ++k.run, k.chosen);
        }
    }
    if (!R::WHOLE) close_group(); /* also an empty group, since groups are counted */
}

/* Waits for the tile in slot `at` of the ring, in the slot's round-th use. */
template <apr_dtype D>
static __device__ __forceinline__ void await_tile(const decode_gemv_layout &layout, const ring_slots &places, int at, int round)
{
    if constexpr (decode_gemv_ring<D>::WHOLE) {
        ptx_await_round(places.arrived + at, round & 1);
    } else {
        wait_for_groups(layout.depth - 1);
        __syncwarp();
    }
}

/* Multiplies a warp's tiles and stores the sums of each row group. */
template <apr_dtype D, decode_gemv_kind KIND>
static __device__ __forceinline__ void multiply_tiles(const decode_gemv_call &a, const decode_gemv_layout &layout, weight_loader &k,
                                                      int begin, const ring_slots &places, const uint8_t *x, const decode_gemv_lane &l,
                                                      float *row_group_sums)
{
    typedef decode_gemv_type<D> T;
    const uint8_t *const rows = places.ring + T::row_of(l.g) * T::BYTES + T::lane_bytes(l.t);
    int tile = begin - fast_divide(begin, layout.tiles) * layout.n_tiles, to = 0, round = 0;
    float total[2] = {0.0f, 0.0f};
    uint4 inputs[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
    activation_place at = place_of<D>(tile);
    for (int i = begin; i < k.end; i++) {
        await_tile<D>(layout, places, to, round);
        T::dot(rows + to * decode_gemv_ring<D>::BYTES, x + at.tile, at.column, l, inputs, total);
        __syncwarp();
        load_next_tile<D, KIND>(a, layout, places, k, i + layout.depth, to);
        if (++to == layout.depth) to = 0, round++;
        next_place<D>(at);
        if (++tile == layout.n_tiles || i + 1 == k.end) {
            put_sums<D>(l, total, row_group_sums);
            row_group_sums += APR_ROW_GROUP;
            tile = 0;
            at = activation_place{0, 0};
        }
    }
}

/* Initializes the ring's barriers, before any copy. */
template <apr_dtype D> static __device__ __forceinline__ void init_ring(const decode_gemv_layout &layout, const ring_slots &places)
{
    if constexpr (decode_gemv_ring<D>::WHOLE) {
        const int lane = (int)threadIdx.x % 32;
        if (lane < layout.depth) ptx_begin_barrier(places.arrived + lane, 1);
        ptx_show_barriers();
        __syncwarp();
    }
}

/* Computes the block's share of the row groups. */
template <apr_dtype D, decode_gemv_kind KIND>
static __device__ __forceinline__ void compute_row_groups(const decode_gemv_call &a, const decode_gemv_layout &layout, int block,
                                                          uint8_t *memory)
{
    __shared__ int begins[WARPS];
    __shared__ int2 row_groups; /* of the block: in shared memory to save registers */
    __shared__ float shared_factor;
    __shared__ float weights[of_experts(KIND) ? APR_DECODE_GEMV_MAX_EXPERTS : 1];
    __shared__ uint64_t arrived[WARPS][MAX_DEPTH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, width = is_glu(KIND) ? 2 : 1;
    const int ring_bytes = layout.depth * decode_gemv_ring<D>::BYTES;
    const ring_slots places = {memory + warp * ring_bytes, arrived[warp]};
    uint8_t *const x = memory + WARPS * ring_bytes;
    epilogue_extras *const extras = (epilogue_extras *)(x + layout.x_bytes);
    float *const sums = (float *)(extras + layout.n_extras);
    uint32_t *const table = (uint32_t *)(sums + WARPS * layout.slots * APR_ROW_GROUP);
    row_group_share *const shares = (row_group_share *)(table + decode_gemv_type<D>::TABLE_WORDS);

    if (!layout.excludes_next && !a.has_concurrent) pdl_trigger();
    const int runs = KIND == GEMV_EXPERT_SUMS ? layout.n_tiles / layout.n_run : 1; /* runs of a row group */
    const int first = block * layout.each + min(block, layout.more), last = first + layout.each + (block < layout.more);
    const int n = (last - first) * width * layout.n_tiles, begin = n * warp / WARPS, end = n * (warp + 1) / WARPS;
    if (threadIdx.x == 0) row_groups = make_int2(first, last);
    init_ring<D>(layout, places);
    record_shares(begin, end, layout.tiles, shares, begins);
    if (KIND == GEMV_EXPERT_GLU && !a.inputs_ready_early) pdl_wait();
    if (KIND == GEMV_EXPERT_GLU) put_factor(a, load_all_inputs<D, KIND>(a, layout, x), &shared_factor);
    weight_loader k = loader_of<D, KIND>(a, layout, first * width * runs, begin, end, weights);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#pragma unroll 1 /* registers spill there otherwise */
#endif
    for (int i = 0; i < layout.depth; i++) load_next_tile<D, KIND>(a, layout, places, k, begin + i, i);
    if constexpr (decode_gemv_type<D>::TABLE_WORDS > 0)
        for (unsigned i = threadIdx.x; i < decode_gemv_type<D>::TABLE_WORDS; i += THREADS)
            table[i] = decode_gemv_type<D>::table_word((int)i);
    const float prefetched = prefetch_arguments(a);
    if (lane < APR_ROW_GROUP) /* the warp's first sums; zeros if it has no tiles */
        sums[warp * layout.slots * APR_ROW_GROUP + lane] = begin == end ? 0.0f : prefetched;
    const int row = (int)threadIdx.x;
    const bool has_extras = row < layout.n_extras && row < (last - first) * APR_ROW_GROUP;
    const part_row at = row_at<KIND>(a, has_extras ? first + row / APR_ROW_GROUP : first, row % APR_ROW_GROUP);
    if (KIND == GEMV_EXPERT_SUMS && !a.inputs_ready_early) pdl_wait();
    if (has_extras) extras[row] = of_experts(KIND) ? extras_of<KIND>(a, at) : constant_extras_of<KIND>(a, at);
    if (KIND == GEMV_EXPERT_SUMS || (!of_experts(KIND) && !a.is_concurrent)) pdl_wait();
    if (a.has_concurrent) pdl_trigger(); /* it has the same inputs, which are ready */
    const bool has_residual = KIND == GEMV_SUMS && has_extras && a.epilogue == APR_EPILOGUE_ADD;
    const float residual = has_residual ? __ldcg(a.residual + at.r) : 0.0f;
    const float squares = KIND == GEMV_EXPERT_GLU ? 0.0f : load_all_inputs<D, KIND>(a, layout, x);
    if (has_residual) extras[row].residual = residual;
    __syncthreads();
    if (KIND != GEMV_EXPERT_GLU) put_factor(a, squares, &shared_factor);
    decode_gemv_lane l = decode_gemv_lane_of(lane);
    l.table = table;
    if (decode_gemv_type<D>::TABLE_WORDS > 0) l.word = *table;
    multiply_tiles<D, KIND>(a, layout, k, begin, places, x, l, sums + warp * layout.slots * APR_ROW_GROUP);
    __syncthreads();
    write_rows<KIND>(a, decode_gemv_epilogue{shared_factor, sums, shares, begins, layout.slots, weights, extras, layout.n_extras},
                     row_groups.x, row_groups.y);
    if (a.is_concurrent) pdl_wait(); /* kernels that wait for this one rely on both being finished */
}

#endif
