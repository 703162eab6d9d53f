/* flow_kernel.cuh - the decode GEMV kernel (flow.cuh): each warp has a ring of weight tiles, filled before the activations are ready.
 *
 * A thread block's tiles, row group by row group, are divided among its warps in runs of equal length. A warp's ring holds its next tiles
 * on their way from memory. Partial sums of a row group that several warps share are added in the order of the warps. Two thread blocks fit
 * a multiprocessor, so that the next kernel's weights arrive while this one ends. */
#ifndef APR_KERNELS_CUDA_FLOW_KERNEL_CUH
#define APR_KERNELS_CUDA_FLOW_KERNEL_CUH

#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/ops/flow.cuh"
#include "kernels/cuda/ops/flow_dot.cuh"
#include "kernels/cuda/ops/follow.cuh"

enum {
    WARPS = 12,
    THREADS = 32 * WARPS,
    RESERVED_BYTES = 2048,  /* of a block's shared memory: used by CUDA and by declared arrays */
    SMALL_BYTES = 98 << 10, /* of a block's shared memory; see lay_out */
    ENOUGH_DEPTH = 2,
    MOST_DEPTH = 4,
    AHEAD = 4, /* loads of a thread that are in flight together */
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
typedef struct flow_divisor {
    int by;
    uint32_t inverse; /* 2^32 / by, rounded up; not used for 1 */
} flow_divisor;

static inline flow_divisor flow_divisor_of(int by)
{
    return flow_divisor{by, (uint32_t)(((1ull << 32) + (unsigned)by - 1) / (unsigned)by)};
}

static __device__ __forceinline__ int divided(int x, const flow_divisor &d)
{
    return d.by == 1 ? x : (int)__umulhi((uint32_t)x, d.inverse);
}

/* What a kernel computes: sums of rows, the GLU of two matrices, or one of the two steps of a token's experts: first their GLUs, then,
 * concurrently, the weighted sum of down. */
typedef enum { FLOW_SUMS, FLOW_UNITS, FLOW_EXPERT_UNITS, FLOW_EXPERT_SUMS } flow_kind;
static constexpr __host__ __device__ bool is_glu(flow_kind kind) { return kind == FLOW_UNITS || kind == FLOW_EXPERT_UNITS; }
static constexpr __host__ __device__ bool of_experts(flow_kind kind) { return kind == FLOW_EXPERT_UNITS || kind == FLOW_EXPERT_SUMS; }

/* A part of a call (apr_flow_part) as the kernel sees it. */
typedef struct flow_part {
    const uint8_t *weight;
    const float *bias;
    float *out;
    int n_units;
} flow_part;

/* Routed experts. Their matrices are consecutive in a stack. Rank k of a token's choice is expert routes[k] with weight routes[n_used
 * + k]. */
typedef struct flow_routed {
    const float *routes;
    int n_used, n_units; /* row groups of one expert's matrix */
    flow_divisor used, units;
    int64_t matrix_bytes;
    int n_groups, all_groups; /* groups of 16 inputs of one expert, without and with the padding of its row */
    int gap;                  /* GLU: padding columns between one expert's activations and the next one's */
} flow_routed;

typedef struct flow_call {
    apr_flow_ending ending;
    int n_parts, n_squares;
    flow_part parts[APR_FLOW_PARTS];
    int n_in;
    const uint8_t *x;
    const float *squares, *residual, *gain;
    float eps, gain_offset;
    apr_glu_shape glu;
    uint8_t *planes;
    float *out_squares;
    flow_routed routed;
    bool has_beside, is_beside,
        is_first;  /* see flow_args.h. Experts: the two steps are such a pair, and routes are ready when the second one begins */
    bool is_early; /* experts: the first step's input, or the second one's residual, is ready when the kernel begins */
} flow_call;

/* Layout of a block's shared memory: rings, activations, rows' extras, sums of row groups that warps share. */
typedef struct flow_layout {
    int each, more;          /* row groups of a block, and how many of the first blocks have one more */
    int depth;               /* tiles in a ring */
    int slots;               /* row groups that a warp may have a part of */
    int n_items;             /* tiles across a row group's columns */
    int n_run;               /* of these, how many are contiguous; with experts a row group is a run of each of them */
    flow_divisor items, run; /* divisors by n_items and n_run */
    int x_bytes;
    int n_extras;  /* rows of a block whose extras are prefetched */
    bool is_alone; /* no block of the next kernel fits next to it */
} flow_layout;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define FLOW_HAS_BULK false
#else
#define FLOW_HAS_BULK true
#endif

/* A tile is contiguous in memory, row after row. Rows of plain numbers stay as stored: a tile of them is 16 pieces of 128 bytes. These
 * would all begin in the same bank, so the 16-byte chunks of a row are permuted (XOR) by the row's number.
 *
 * WHOLE: a tile is one bulk copy issued by one lane, and each slot of the ring has an mbarrier that counts its bytes. Otherwise all lanes
 * copy 16 bytes at a time. Which is faster was measured for each type (NOTES.md). */
template <apr_dtype D> struct flow_ring {
    static constexpr int BYTES = APR_FLOW_UNIT * flow_type<D>::BYTES, PIECES = BYTES / 16;
    static constexpr bool APART = flow_type<D>::BYTES == 128; /* rows */
    static constexpr bool WHOLE = FLOW_HAS_BULK && (D == APR_Q4_K || D == APR_Q6_K);
    static constexpr bool FILLED = D == APR_MXFP4 || D == APR_Q8_0; /* rows of experts may end within a tile, since a block is smaller */
    static_assert(BYTES % 16 == 0, "items are copied by 16 bytes");
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
template <flow_kind KIND> static __host__ __device__ inline int units_of(const flow_call &a)
{
    if (is_glu(KIND)) return a.parts[0].n_units;
    int n = 0;
    for (int i = 0; i < a.n_parts; i++) n += a.parts[i].n_units;
    return n;
}

/* The first tile of a row group. */
template <flow_kind KIND> static __device__ __forceinline__ const uint8_t *items_of(const flow_call &a, int64_t unit_bytes, int unit)
{
    int part = 0;
    if (is_glu(KIND)) part = unit % 2, unit /= 2;
    else
        while (part + 1 < a.n_parts && unit >= a.parts[part].n_units) unit -= a.parts[part++].n_units;
    return a.parts[part].weight + unit * unit_bytes;
}

/* The start of a run. GLU of experts: gate and up have the row groups of rank 0, then those of rank 1, ... Sums of experts: each row group
 * has a run for each rank. Lane k holds the expert `chosen` for rank k. All lanes take part. */
template <flow_kind KIND>
static __device__ __forceinline__ const uint8_t *run_at(const flow_call &a, int64_t run_bytes, int run, int chosen)
{
    if (!of_experts(KIND)) return items_of<KIND>(a, run_bytes, run);
    const int of = is_glu(KIND) ? run / 2 : run, by = is_glu(KIND) ? a.routed.n_units : a.routed.n_used;
    const int quotient = divided(of, is_glu(KIND) ? a.routed.units : a.routed.used), rest = of - quotient * by;
    const int rank = is_glu(KIND) ? quotient : rest, unit = is_glu(KIND) ? rest : quotient;
    const int expert = __shfl_sync(0xffffffffu, chosen, rank);
    return a.parts[is_glu(KIND) ? run % 2 : 0].weight + expert * a.routed.matrix_bytes + unit * run_bytes;
}

/* Issues the copy of a tile, by all lanes or by the first one. */
template <apr_dtype D> static __device__ __forceinline__ void ask(const uint8_t *item, int row_bytes, uint8_t *to, uint64_t *arrived)
{
    typedef flow_ring<D> R;
    const int lane = (int)threadIdx.x % 32;
    if constexpr (R::WHOLE) {
        if (lane > 0) return;
        ptx_arrive_with_bytes(arrived, R::BYTES);
        ptx_copy_bulk_once(to, item, R::BYTES, arrived);
        return;
    }
    if (R::APART) item += lane / 8 * row_bytes + lane % 8 * 16;
    else item += 16 * lane;
#pragma unroll
    for (int i = 0; i < (R::PIECES + 31) / 32; i++) {
        const int at = lane + 32 * i, there = R::APART ? at ^ (at / 8 % 8) : at;
        if (32 * i + 31 < R::PIECES || at < R::PIECES) copy_piece(to + 16 * there, item);
        item += R::APART ? 4 * row_bytes : 512;
    }
}

/* What a row's sum is finished with; zero where there is none. */
typedef struct __align__(16) flow_extras
{
    float bias, other_bias; /* other_bias: of GLU's second part */
    float residual, gain;
}
flow_extras;

/* The first and the last warp that have a part of a row group. */
typedef struct flow_share {
    uint8_t first, last;
} flow_share;

/* What the epilogue needs. */
typedef struct flow_finish {
    float factor;
    const float *sums;        /* [WARPS][slots][APR_FLOW_UNIT] */
    const flow_share *shares; /* [row groups] */
    const int *begins;        /* [WARPS]: the first row group of each warp */
    int slots;
    const float *weights;      /* weights of a token's experts, by rank */
    const flow_extras *extras; /* of the first rows, prefetched while weights were multiplied */
    int n_extras;
} flow_finish;

/* A row's sum: the partial sums of all warps that had a part of its row group, in their order. For all but the first warp it is their first
 * row group, and warps between that have no tiles at all hold zeros there. */
static __device__ __forceinline__ float joined(const flow_finish &f, int unit, int row)
{
    const flow_share share = f.shares[unit];
    const int step = f.slots * APR_FLOW_UNIT;
    const float *from = f.sums + share.first * step + row;
    float sum = from[(unit - f.begins[share.first]) * APR_FLOW_UNIT];
#pragma unroll 4
    for (int left = share.last - share.first; left > 0; left--) sum += *(from += step);
    return sum * f.factor;
}

/* Records which warps share which row group: a warp writes itself for the row groups whose first or last tile it has. */
static __device__ __forceinline__ void tell_shares(int begin, int end, const flow_divisor &items, flow_share *shares, int *begins)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_items = items.by;
    if (end <= begin) return;
    const int first = divided(begin, items), last = divided(end - 1, items);
    if (lane == 0) begins[warp] = first;
    for (int unit = first + lane; unit <= last; unit += 32) {
        if (unit * n_items >= begin) shares[unit].first = (uint8_t)warp;
        if ((unit + 1) * n_items <= end) shares[unit].last = (uint8_t)warp;
    }
}

/* The bias of row r of a part. Sums of experts: their biases times their weights. GLU of experts: the bias of the expert that has the
 * row. */
template <flow_kind KIND> static __device__ __forceinline__ float bias_of(const flow_call &a, int part, int64_t r, int rank)
{
    const float *const bias = a.parts[part].bias, *const routes = a.routed.routes;
    if (bias == NULL) return 0.0f;
    if (!of_experts(KIND)) return __ldg(bias + r);
    const int64_t n_rows = (int64_t)a.routed.n_units * APR_FLOW_UNIT;
    if (is_glu(KIND)) return __ldg(bias + (int64_t)__ldcg(routes + rank) * n_rows + (r - rank * n_rows));
    float sum = 0.0f;
    for (int k = 0; k < a.routed.n_used; k++)
        sum = fmaf(__ldcg(routes + a.routed.n_used + k), __ldg(bias + (int64_t)__ldcg(routes + k) * n_rows + r), sum);
    return sum;
}

/* The position of a row: its part, and with experts its rank. */
typedef struct flow_row {
    int part, unit; /* within its part */
    int rank;
    int64_t r; /* within its part */
} flow_row;

template <flow_kind KIND> static __device__ __forceinline__ flow_row row_at(const flow_call &a, int unit, int row)
{
    flow_row at = {0, unit, 0, 0};
    if (is_glu(KIND)) at.rank = of_experts(KIND) ? divided(at.unit, a.routed.units) : 0;
    else
        while (at.part + 1 < a.n_parts && at.unit >= a.parts[at.part].n_units) at.unit -= a.parts[at.part++].n_units;
    at.r = (int64_t)at.unit * APR_FLOW_UNIT + row;
    return at;
}

/* All but the residual, which previous kernels may not have written yet. */
template <flow_kind KIND> static __device__ __forceinline__ flow_extras lasting_extras_of(const flow_call &a, const flow_row &at)
{
    flow_extras e = {bias_of<KIND>(a, at.part, at.r, at.rank), 0.0f, 0.0f, 0.0f};
    if (is_glu(KIND)) e.other_bias = bias_of<KIND>(a, 1, at.r, at.rank);
    if (a.planes != NULL && a.gain != NULL) e.gain = __ldg(a.gain + at.r);
    return e;
}

template <flow_kind KIND> static __device__ __forceinline__ flow_extras extras_of(const flow_call &a, const flow_row &at)
{
    flow_extras e = lasting_extras_of<KIND>(a, at);
    if (!is_glu(KIND) && a.ending == APR_FLOW_ADD) e.residual = __ldcg(a.residual + at.r);
    return e;
}

/* The epilogue: one thread for each row of the block's row groups. A half warp has 16 rows, which are a group of activations. */
template <flow_kind KIND> static __device__ __forceinline__ void finish(const flow_call &a, const flow_finish &f, int first, int last)
{
    const int n = (last - first) * APR_FLOW_UNIT;
    for (int base = 0; base < n; base += THREADS) {
        const int i = base + (int)threadIdx.x, unit = i / APR_FLOW_UNIT, row = i % APR_FLOW_UNIT;
        const bool on = i < n;
        const flow_row at = row_at<KIND>(a, on ? first + unit : first, row);
        flow_extras e = {};
        float value = 0.0f;
        if (on) e = i < f.n_extras ? f.extras[i] : extras_of<KIND>(a, at);
        if (is_glu(KIND) && on) {
            value = apr_glu_of(&a.glu, joined(f, 2 * unit, row) + e.bias, joined(f, 2 * unit + 1, row) + e.other_bias);
            if (of_experts(KIND)) value *= f.weights[at.rank];
        } else if (on) {
            value = joined(f, unit, row) + e.bias;
            if (a.ending == APR_FLOW_ADD) value += e.residual;
        }
        if (on && a.parts[at.part].out != NULL) a.parts[at.part].out[at.r] = value;
        const float left = a.gain != NULL ? value * (e.gain + a.gain_offset) : value;
        float squares = value * value, most = on ? fabsf(left) : 0.0f;
#pragma unroll
        for (int lanes = APR_FLOW_UNIT / 2; lanes > 0; lanes /= 2) { /* half_warp_sum and half_warp_max interleaved, to overlap their
                                                                      * latencies */
            squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
        }
        if (a.out_squares != NULL && on && row == 0) a.out_squares[at.unit] = squares;
        if (a.planes != NULL) planes_put_of(a.planes, at.r + (of_experts(KIND) ? at.rank * a.routed.gap : 0), on, left, most);
    }
}

/* A lane's part of the sum of the input groups' squares, four at a time: n_in is a multiple of APR_FLOW_COLUMNS. */
static __device__ __forceinline__ float squares_of_lane(const flow_call &a)
{
    const float4 *const squares = (const float4 *)a.squares;
    float sum = 0.0f;
    for (int base = (int)threadIdx.x % 32; base < a.n_squares / 4; base += 32 * AHEAD) {
        float4 v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            v[k] = base + 32 * k < a.n_squares / 4 ? __ldcg(squares + base + 32 * k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    return sum;
}

/* 1 / RMS of the inputs, by the warp that has the fewest tiles: it is needed in the epilogue. */
static __device__ __forceinline__ void put_factor(const flow_call &a, float squares, float *factor)
{
    if (threadIdx.x >= 32) return;
    const float value = a.squares == NULL ? 1.0f : rsqrtf(warp_sum(squares) / (float)a.n_in + a.eps);
    if (threadIdx.x == 0) *factor = value;
}

/* Adds the four lanes' sums of each row, stores them, and resets the totals. */
template <apr_dtype D> static __device__ __forceinline__ void put_sums(const flow_lane &l, float (&total)[2], float *sums)
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const float sum = quad_sum(total[k]);
        if (l.t == 0) sums[flow_type<D>::row_of(l.g) + flow_type<D>::ROW_STEP * k] = sum;
        total[k] = 0.0f;
    }
}

/* Loads activations for shared memory (layout: flow_dot.cuh): as many 16-byte pieces as a thread has in flight at once. */
static __device__ __forceinline__ void ask_planes(const uint8_t *from, int n_pieces, int first, uint4 (&pieces)[AHEAD])
{
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        if (first + k * THREADS < n_pieces) pieces[k] = __ldcg((const uint4 *)from + first + k * THREADS);
}
/* Piece i of the activations, with zeros for the padding of a row, which no kernel wrote. It has the bytes of one group, or one number of
 * each of four groups. */
static __device__ __forceinline__ uint4 with_zeros(const flow_routed &r, int i, uint4 v)
{
    enum { GROUPS = PLANES_COLUMNS / PLANES_GROUP };
    const int piece = i % FLOW_TILE_PIECES, step = 16 * piece < PLANES_SCALES ? 0 : 1;
    const int group = (i / FLOW_TILE_PIECES * GROUPS + (step == 0 ? piece % GROUPS : piece % 4 * 4)) % r.all_groups;
    return make_uint4(group < r.n_groups ? v.x : 0, group + step < r.n_groups ? v.y : 0, group + 2 * step < r.n_groups ? v.z : 0,
                      group + 3 * step < r.n_groups ? v.w : 0);
}
template <apr_dtype D, bool FILLED>
static __device__ __forceinline__ void put_planes(const flow_call &a, const uint4 (&pieces)[AHEAD], int n_pieces, int first, uint8_t *x)
{
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        const int i = first + k * THREADS, tile = i / FLOW_TILE_PIECES, piece = i % FLOW_TILE_PIECES;
        const bool is_bytes = 16 * piece < PLANES_SCALES;
        if (i >= n_pieces) continue;
        const uint4 v = FILLED ? with_zeros(a.routed, i, pieces[k]) : pieces[k];
        ((uint4 *)x)[tile * FLOW_TILE_PIECES + flow_piece(piece)] = is_bytes ? flow_type<D>::arranged(v) : v;
    }
}

/* Copies all activations to shared memory. One warp also loads their sums of squares at the same time, and returns its lanes' parts: they
 * are in a few cache lines, and all warps of all blocks would read these at once. */
template <apr_dtype D, bool FILLED>
static __device__ __forceinline__ float take_inputs_and_squares(const flow_call &a, int n_pieces, uint8_t *x, bool has_squares)
{
    const int thread = (int)threadIdx.x;
    float squares = 0.0f;
    uint4 pieces[AHEAD];
    ask_planes(a.x, n_pieces, thread, pieces);
    if (has_squares) squares = squares_of_lane(a);
    put_planes<D, FILLED>(a, pieces, n_pieces, thread, x);
    for (int first = thread + AHEAD * THREADS; first < n_pieces; first += AHEAD * THREADS) {
        ask_planes(a.x, n_pieces, first, pieces);
        put_planes<D, FILLED>(a, pieces, n_pieces, first, x);
    }
    return squares;
}

template <apr_dtype D, flow_kind KIND>
static __device__ __forceinline__ float take_all(const flow_call &a, const flow_layout &layout, uint8_t *x)
{
    return take_inputs_and_squares < D,
           of_experts(KIND) && flow_ring<D>::FILLED > (a, layout.x_bytes / 16, x, threadIdx.x < 32 && a.squares != NULL);
}

/* Where a weight tile's activations are: the byte offset of their tile, and the column in it. */
typedef struct flow_place {
    int tile, column;
} flow_place;

template <apr_dtype D> static __device__ __forceinline__ flow_place place_of(int item)
{
    const int column = item * flow_type<D>::COLUMNS;
    return flow_place{column / PLANES_COLUMNS * PLANES_BYTES, column % PLANES_COLUMNS};
}

template <apr_dtype D> static __device__ __forceinline__ void next_place(flow_place &at)
{
    at.column += flow_type<D>::COLUMNS;
    if (at.column < PLANES_COLUMNS) return;
    at.tile += PLANES_BYTES;
    at.column = 0;
}

/* A warp's ring, and the barriers of its slots where copies are WHOLE. */
typedef struct flow_places {
    uint8_t *ring;
    uint64_t *arrived; /* [depth] */
} flow_places;

/* A warp's loader: the next tile to copy. */
typedef struct flow_asker {
    const uint8_t *wanted;
    int end;       /* one past its last tile */
    int run, left; /* the run, and its tiles that have not been requested */
    int chosen;    /* see run_at */
} flow_asker;

/* weights: [APR_FLOW_MOST_EXPERTS], of the chosen experts. */
template <apr_dtype D, flow_kind KIND>
static __device__ __forceinline__ flow_asker asker_of(const flow_call &a, const flow_layout &layout, int first_run, int begin, int end,
                                                      float *weights)
{
    const int lane = (int)threadIdx.x % 32, n_run = of_experts(KIND) ? layout.n_run : layout.n_items;
    const int before = divided(begin, of_experts(KIND) ? layout.run : layout.items), rest = begin - before * n_run;
    flow_asker k = {NULL, end, first_run + before, n_run - rest, 0};
    if (of_experts(KIND)) { /* tiles can be requested once the experts are known */
        if (KIND == FLOW_EXPERT_UNITS) wait_for_previous();
        const float weight = KIND == FLOW_EXPERT_UNITS && threadIdx.x < 32 && lane < a.routed.n_used
                                 ? __ldcg(a.routed.routes + a.routed.n_used + lane)
                                 : 0.0f;
        if (lane < a.routed.n_used) k.chosen = (int)__ldcg(a.routed.routes + lane);
        if (KIND == FLOW_EXPERT_UNITS && threadIdx.x < 32)
            weights[lane] = weight; /* before the copies of weights, which would delay them */
    }
    const int step = flow_ring<D>::APART ? flow_type<D>::BYTES : flow_ring<D>::BYTES;
    k.wanted = run_at<KIND>(a, (int64_t)n_run * flow_ring<D>::BYTES, k.run, k.chosen) + rest * step;
    return k;
}

/* Requests tile i, into slot `at` of the ring. */
template <apr_dtype D, flow_kind KIND>
static __device__ __forceinline__ void ask_next(const flow_call &a, const flow_layout &layout, const flow_places &places, flow_asker &k,
                                                int i, int at)
{
    typedef flow_ring<D> R;
    const int n_run = of_experts(KIND) ? layout.n_run : layout.n_items;
    if (i < k.end) {
        ask<D>(k.wanted, layout.n_items * flow_type<D>::BYTES, places.ring + at * R::BYTES, places.arrived + at);
        k.wanted += R::APART ? flow_type<D>::BYTES : R::BYTES;
        if (--k.left == 0 && i + 1 < k.end) {
            k.left = n_run;
            k.wanted = run_at<KIND>(a, (int64_t)n_run * R::BYTES, ++k.run, k.chosen);
        }
    }
    if (!R::WHOLE) close_group(); /* also an empty group, since groups are counted */
}

/* Waits for the tile in slot `at` of the ring, in the slot's round-th use. */
template <apr_dtype D>
static __device__ __forceinline__ void await_item(const flow_layout &layout, const flow_places &places, int at, int round)
{
    if constexpr (flow_ring<D>::WHOLE) {
        ptx_await_round(places.arrived + at, round & 1);
    } else {
        wait_for_groups(layout.depth - 1);
        __syncwarp();
    }
}

/* Multiplies a warp's tiles and stores the sums of each row group. */
template <apr_dtype D, flow_kind KIND>
static __device__ __forceinline__ void multiply_items(const flow_call &a, const flow_layout &layout, flow_asker &k, int begin,
                                                      const flow_places &places, const uint8_t *x, const flow_lane &l, float *unit_sums)
{
    typedef flow_type<D> T;
    const uint8_t *const rows = places.ring + T::row_of(l.g) * T::BYTES + T::lane_bytes(l.t);
    int item = begin - divided(begin, layout.items) * layout.n_items, to = 0, round = 0;
    float total[2] = {0.0f, 0.0f};
    uint4 inputs[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
    flow_place at = place_of<D>(item);
    for (int i = begin; i < k.end; i++) {
        await_item<D>(layout, places, to, round);
        T::dot(rows + to * flow_ring<D>::BYTES, x + at.tile, at.column, l, inputs, total);
        __syncwarp();
        ask_next<D, KIND>(a, layout, places, k, i + layout.depth, to);
        if (++to == layout.depth) to = 0, round++;
        next_place<D>(at);
        if (++item == layout.n_items || i + 1 == k.end) {
            put_sums<D>(l, total, unit_sums);
            unit_sums += APR_FLOW_UNIT;
            item = 0;
            at = flow_place{0, 0};
        }
    }
}

/* Initializes the ring's barriers, before any copy. */
template <apr_dtype D> static __device__ __forceinline__ void begin_places(const flow_layout &layout, const flow_places &places)
{
    if constexpr (flow_ring<D>::WHOLE) {
        const int lane = (int)threadIdx.x % 32;
        if (lane < layout.depth) ptx_begin_barrier(places.arrived + lane, 1);
        ptx_show_barriers();
        __syncwarp();
    }
}

/* Computes the block's share of the row groups. */
template <apr_dtype D, flow_kind KIND>
static __device__ __forceinline__ void make_units(const flow_call &a, const flow_layout &layout, int block, uint8_t *memory)
{
    __shared__ int begins[WARPS];
    __shared__ int2 units; /* of the block: in shared memory to save registers */
    __shared__ float shared_factor;
    __shared__ float weights[of_experts(KIND) ? APR_FLOW_MOST_EXPERTS : 1];
    __shared__ uint64_t arrived[WARPS][MOST_DEPTH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, width = is_glu(KIND) ? 2 : 1;
    const int ring_bytes = layout.depth * flow_ring<D>::BYTES;
    const flow_places places = {memory + warp * ring_bytes, arrived[warp]};
    uint8_t *const x = memory + WARPS * ring_bytes;
    flow_extras *const extras = (flow_extras *)(x + layout.x_bytes);
    float *const sums = (float *)(extras + layout.n_extras);
    uint32_t *const table = (uint32_t *)(sums + WARPS * layout.slots * APR_FLOW_UNIT);
    flow_share *const shares = (flow_share *)(table + flow_type<D>::TABLE_WORDS);

    if (!layout.is_alone && !a.has_beside) let_next_begin();
    const int runs = KIND == FLOW_EXPERT_SUMS ? layout.n_items / layout.n_run : 1; /* runs of a row group */
    const int first = block * layout.each + min(block, layout.more), last = first + layout.each + (block < layout.more);
    const int n = (last - first) * width * layout.n_items, begin = n * warp / WARPS, end = n * (warp + 1) / WARPS;
    if (threadIdx.x == 0) units = make_int2(first, last);
    begin_places<D>(layout, places);
    tell_shares(begin, end, layout.items, shares, begins);
    if (KIND == FLOW_EXPERT_UNITS && !a.is_early) wait_for_previous();
    if (KIND == FLOW_EXPERT_UNITS) put_factor(a, take_all<D, KIND>(a, layout, x), &shared_factor);
    flow_asker k = asker_of<D, KIND>(a, layout, first * width * runs, begin, end, weights);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#pragma unroll 1 /* registers spill there otherwise */
#endif
    for (int i = 0; i < layout.depth; i++) ask_next<D, KIND>(a, layout, places, k, begin + i, i);
    if constexpr (flow_type<D>::TABLE_WORDS > 0)
        for (unsigned i = threadIdx.x; i < flow_type<D>::TABLE_WORDS; i += THREADS) table[i] = flow_type<D>::table_word((int)i);
    const float brought = bring_arguments(a);
    if (lane < APR_FLOW_UNIT) /* the warp's first sums; zeros if it has no tiles */
        sums[warp * layout.slots * APR_FLOW_UNIT + lane] = begin == end ? 0.0f : brought;
    const int row = (int)threadIdx.x;
    const bool has_extras = row < layout.n_extras && row < (last - first) * APR_FLOW_UNIT;
    const flow_row at = row_at<KIND>(a, has_extras ? first + row / APR_FLOW_UNIT : first, row % APR_FLOW_UNIT);
    if (KIND == FLOW_EXPERT_SUMS && !a.is_early) wait_for_previous();
    if (has_extras) extras[row] = of_experts(KIND) ? extras_of<KIND>(a, at) : lasting_extras_of<KIND>(a, at);
    if (KIND == FLOW_EXPERT_SUMS || (!of_experts(KIND) && !a.is_beside)) wait_for_previous();
    if (a.has_beside) let_next_begin(); /* it has the same inputs, which are ready */
    const bool has_residual = KIND == FLOW_SUMS && has_extras && a.ending == APR_FLOW_ADD;
    const float residual = has_residual ? __ldcg(a.residual + at.r) : 0.0f;
    const float squares = KIND == FLOW_EXPERT_UNITS ? 0.0f : take_all<D, KIND>(a, layout, x);
    if (has_residual) extras[row].residual = residual;
    __syncthreads();
    if (KIND != FLOW_EXPERT_UNITS) put_factor(a, squares, &shared_factor);
    flow_lane l = flow_lane_of(lane);
    l.table = table;
    if (flow_type<D>::TABLE_WORDS > 0) l.word = *table;
    multiply_items<D, KIND>(a, layout, k, begin, places, x, l, sums + warp * layout.slots * APR_FLOW_UNIT);
    __syncthreads();
    finish<KIND>(a, flow_finish{shared_factor, sums, shares, begins, layout.slots, weights, extras, layout.n_extras}, units.x, units.y);
    if (a.is_beside) wait_for_previous(); /* kernels that wait for this one rely on both being finished */
}

#endif
