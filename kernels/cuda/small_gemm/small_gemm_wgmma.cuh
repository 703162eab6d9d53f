/* small_gemm_wgmma.cuh - the small GEMM (small_gemm.cuh) with WGMMA (9.0a). Row blocks, stages, their division among thread blocks and the fix-up
 * are those of small_gemm_kernel.cuh, and for experts also the runs.
 *
 * One warp (the producer) copies weights and inputs, stage by stage, through a ring in shared memory; sixteen warps have 16 rows each. A
 * warpgroup decodes 64 columns into registers while the products of the previous 64 run, and proceeds to the next stage without waiting for
 * the other warpgroups. All sums of a row are in one lane, so no exchange is needed when a run is over. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_WGMMA_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_WGMMA_CUH

#include "kernels/cuda/small_gemm/small_gemm_kernel.cuh"
#include "kernels/cuda/small_gemm/small_gemm_wgmma_codes.cuh"

enum {
    WGMMA_ROWS = GEMM_LARGE,
    WGMMA_ROW_GROUPS = WGMMA_ROWS / APR_ROW_GROUP,
    WGMMA_WARPS = WGMMA_ROW_GROUPS, /* that multiply */
    WGMMA_THREADS = 32 * (WGMMA_WARPS + 1),
    WGMMA_MAX_DEPTH = 6,
};

template <apr_dtype D, int TILES_> struct wgmma_stage {
    typedef wgmma_type<D> T;
    typedef gemm_type<D> GEMM;
    static_assert(GEMM::COLUMNS == T::COLUMNS && GEMM::BYTES == T::BYTES, "both kernels have the same stages");
    static_assert(T::COLUMNS == WGMMA_SUBS * GEMM_SUB, "inputs have the same stages");
    static constexpr int TILES = TILES_, N = TILES * 4; /* N: sums of a lane */
    static constexpr int ROW_GROUP_BYTES = APR_ROW_GROUP * T::BYTES, SUM_BYTES = T::MINS ? (int)GEMM_SUM_BYTES : 0;
    static constexpr int X_AT = (WGMMA_ROWS * T::BYTES + 511) / 512 * 512;
    static constexpr int SUMS_AT = X_AT + TILES * WGMMA_TILE_BYTES, BYTES = (SUMS_AT + TILES * SUM_BYTES + 511) / 512 * 512;
};

/* Experts: the run that a stage ends; n_tiles 0: the run continues. is_last: the thread block's last run. */
typedef struct alignas(16) wgmma_run_end {
    int row_block, first_tile;
    short n_tiles, split;
    int is_last;
} wgmma_run_end;

/* After the ring: for each slot a barrier for "stage has arrived" and one for "all warps have read it", and the thread block's share, in
 * shared memory to save registers. */
typedef struct wgmma_barriers {
    uint64_t full[WGMMA_MAX_DEPTH], empty[WGMMA_MAX_DEPTH];
    wgmma_run_end ends[WGMMA_MAX_DEPTH];
    alignas(16) float factors[APR_SMALL_GEMM_MAX_TILES * APR_SMALL_GEMM_TILE]; /* of tokens; copied with the first stage */
    gemm_share share;
} wgmma_barriers;

/* --- copies --- */

template <typename S> GEMM_FN bool is_tiled_layout(const gemm_call &a) { return weight_layout<typename S::GEMM>::is_tiled(a); }
template <typename S> GEMM_FN int wgmma_stage_step(const gemm_call &a)
{
    return is_tiled_layout<S>(a) ? (int)S::ROW_GROUP_BYTES : (int)S::T::BYTES;
}

/* A lane's loader: its row group of the next stage, and the stages left in the row block. Where there is no such row group it copies the
 * last one; the duplicate's sums are not stored. */
typedef struct wgmma_loader {
    const uint8_t *from;
    int left;
} wgmma_loader;

/* The loader at a stage of a row block of an expert's matrices (expert 0 if dense). */
template <typename S> GEMM_FN wgmma_loader loader_of(const gemm_call &a, int expert, int row_block, int stage, int in_block)
{
    const int last = a.n_row_groups - 1;
    int row_group = row_block * WGMMA_ROW_GROUPS + in_block < last ? row_block * WGMMA_ROW_GROUPS + in_block : last;
    const int part = part_of(a, &row_group);
    const int64_t of_all = (int64_t)expert * a.parts[part].n_row_groups + row_group;
    return wgmma_loader{a.parts[part].weight + of_all * (APR_ROW_GROUP * a.row_bytes) + (int64_t)stage * wgmma_stage_step<S>(a),
                        a.n_stages - stage};
}

/* The loader at stage `at`, counted over all row blocks. */
template <typename S> GEMM_FN wgmma_loader loader_at(const gemm_call &a, int at, int in_block)
{
    return loader_of<S>(a, 0, at / a.n_stages, at % a.n_stages, in_block);
}

/* Bytes that a barrier waits for: a stage's weights, and the inputs of so many tiles. */
template <typename S> GEMM_FN int stage_bytes(int n_tiles)
{
    return WGMMA_ROW_GROUPS * S::ROW_GROUP_BYTES + n_tiles * (WGMMA_TILE_BYTES + S::SUM_BYTES);
}

/* Copies a stage's weights by the first lanes of the warp, a row group each; the barrier already expects their bytes. */
template <typename S>
static __device__ __forceinline__ void load_row_groups(const gemm_call &a, wgmma_loader *k, uint8_t *slot, uint64_t *full, int lane)
{
    uint8_t *const to = slot + lane * S::ROW_GROUP_BYTES;
    if (lane >= WGMMA_ROW_GROUPS) return;
    if (is_tiled_layout<S>(a)) ptx_copy_bulk_once(to, k->from, S::ROW_GROUP_BYTES, full);
    else
#pragma unroll 1
        for (int row = 0; row < APR_ROW_GROUP; row++)
            ptx_copy_bulk_once(to + row * S::T::BYTES, k->from + row * a.row_bytes, S::T::BYTES, full);
    k->from += wgmma_stage_step<S>(a);
    k->left--;
}

/* Dense: copies the weights of stage `at`. */
template <typename S>
static __device__ __forceinline__ void load_weights(const gemm_call &a, wgmma_loader *k, int at, uint8_t *slot, uint64_t *full, int lane,
                                                    int n_more)
{
    if (lane == 0) ptx_arrive_with_bytes(full, stage_bytes<S>(a.n_here) + n_more);
    __syncwarp();
    load_row_groups<S>(a, k, slot, full, lane);
    if (k->left == 0) *k = loader_at<S>(a, at + 1, lane);
}

/* Copies the inputs of a row block's stage. */
template <typename S>
static __device__ __forceinline__ void load_inputs(const gemm_call &a, int stage, int first_tile, int n_tiles, uint8_t *slot,
                                                   uint64_t *full, int lane)
{
    const int64_t tile = (int64_t)stage * a.n_tiles + first_tile;
    if (lane == 0) ptx_copy_bulk(slot + S::X_AT, a.x + tile * WGMMA_TILE_BYTES, n_tiles * WGMMA_TILE_BYTES, full);
    if (lane == 0 && S::T::MINS) ptx_copy_bulk(slot + S::SUMS_AT, a.sums + tile * GEMM_SUM_BYTES, n_tiles * (int)GEMM_SUM_BYTES, full);
}

/* The producer warp: copies the first stages' weights before the wait for the inputs, then stage by stage as slots become free. */
template <typename S>
static __device__ __forceinline__ void produce_dense(const gemm_call &a, const gemm_share &share, uint8_t *ring, wgmma_barriers *b,
                                                     int lane)
{
    wgmma_loader k = loader_at<S>(a, share.begin, lane % WGMMA_ROW_GROUPS);
    const int factor_bytes = a.n_here * APR_SMALL_GEMM_TILE * (int)sizeof(float);
    int slot = 0, parity = 0;
#pragma unroll 1
    for (int i = 0; i < a.depth && share.begin + i < share.end; i++)
        load_weights<S>(a, &k, share.begin + i, ring + i * S::BYTES, &b->full[i], lane, i == 0 ? factor_bytes : 0);
    pdl_wait();
    if (lane == 0 && share.begin < share.end)
        ptx_copy_bulk(b->factors, a.factors + a.first_tile * APR_SMALL_GEMM_TILE, factor_bytes, &b->full[0]);
#pragma unroll 1
    for (int i = 0; i < a.depth && share.begin + i < share.end; i++)
        load_inputs<S>(a, (share.begin + i) % a.n_stages, a.first_tile, a.n_here, ring + i * S::BYTES, &b->full[i], lane);
#pragma unroll 1
    for (int at = share.begin + a.depth; at < share.end; at++) {
        uint8_t *const to = ring + slot * S::BYTES;
        ptx_await_round(&b->empty[slot], parity);
        load_weights<S>(a, &k, at, to, &b->full[slot], lane, 0);
        load_inputs<S>(a, at % a.n_stages, a.first_tile, a.n_here, to, &b->full[slot], lane);
        if (++slot == a.depth) slot = 0, parity ^= 1;
    }
}

/* The producer warp for experts: run after run; with each stage it tells the other warps which run the stage ends. */
template <typename S>
static __device__ __forceinline__ void produce_runs(const gemm_call &a, const gemm_share &share, uint8_t *ring, wgmma_barriers *b, int lane)
{
    int slot = 0, round = 0;
#pragma unroll 1
    for (int r = share.first; r < share.last; r++) {
        const gemm_run run = run_of(a, r, share);
        wgmma_loader k = loader_of<S>(a, run.expert, run.row_block, run.stage, lane % WGMMA_ROW_GROUPS);
#pragma unroll 1
        for (int stage = run.stage; stage < run.end; stage++) {
            uint8_t *const to = ring + slot * S::BYTES;
            if (round > 0) ptx_await_round(&b->empty[slot], (round - 1) % 2);
            if (lane == 0) {
                const bool ends = stage + 1 == run.end;
                b->ends[slot] = wgmma_run_end{run.row_block, run.first_tile, (short)(ends ? run.n_tiles : 0), (short)run.split,
                                              ends && r + 1 == share.last};
                ptx_arrive_with_bytes(&b->full[slot], stage_bytes<S>(run.n_tiles));
            }
            __syncwarp();
            load_row_groups<S>(a, &k, to, &b->full[slot], lane);
            load_inputs<S>(a, stage, run.first_tile, run.n_tiles, to, &b->full[slot], lane);
            if (++slot == a.depth) slot = 0, round++;
        }
    }
}

/* --- products --- */

#if PTX_HAS_WARPGROUPS

/* Four steps, with weights in registers. */
template <typename S, int J>
static __device__ __forceinline__ void multiply_steps(float (&sums)[S::N], const uint32_t (&a)[4][4], uint64_t x)
{
    ptx_group_fence();
    ptx_group_mma_f16<(J > 0)>(sums, a[0], ptx_matrix_after(x, S::T::step_at(J, 0)));
    ptx_group_mma_f16<true>(sums, a[1], ptx_matrix_after(x, S::T::step_at(J, 1)));
    ptx_group_mma_f16<true>(sums, a[2], ptx_matrix_after(x, S::T::step_at(J, 2)));
    ptx_group_mma_f16<true>(sums, a[3], ptx_matrix_after(x, S::T::step_at(J, 3)));
    ptx_group_close();
}

/* Loads what the next steps need of both rows. */
template <typename T, int J> static __device__ __forceinline__ void load_steps(const uint8_t *row, int t, typename T::words (&w)[2])
{
    if constexpr (T::PREFETCH) T::template load<J>(row, t, &w[0]), T::template load<J>(row + 8 * T::BYTES, t, &w[1]);
}

/* Decodes what four steps need of a lane's two rows, which are 8 apart. */
template <typename T, int J>
static __device__ __forceinline__ void decode_steps(const uint8_t *row, typename T::words (&w)[2], const typename T::row (&rows)[2], int t,
                                                    uint32_t (&a)[4][4])
{
    uint32_t codes[2][4][2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (!T::PREFETCH) load_no_earlier(), T::template load<J>(row + r * 8 * T::BYTES, t, &w[r]);
        T::template codes<J>(w[r], rows[r], codes[r]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) a[k][0] = codes[0][k][0], a[k][1] = codes[1][k][0], a[k][2] = codes[0][k][1], a[k][3] = codes[1][k][1];
}

template <typename S>
static __device__ __forceinline__ void add_wgmma_sums(float (&total)[S::N], const float (&sums)[S::N], float first, float second)
{
#pragma unroll
    for (int i = 0; i < S::N; i++) total[i] = fmaf(i / 2 % 2 ? second : first, sums[i], total[i]);
}

/* Multiplies a warp's 16 rows of a stage; `row` is its lane's first row. */
template <typename S>
static __device__ __forceinline__ void add_wgmma_stage(const uint8_t *slot, const uint8_t *row, int t, float (&total)[S::N])
{
    typedef typename S::T T;
    const uint8_t *const next = row + 8 * T::BYTES;
    const uint64_t x = ptx_matrix_64(slot + S::X_AT, WGMMA_TILE_BYTES);
    const typename T::row rows[2] = {T::begin(row, t), T::begin(next, t)};
    typename T::words w[2];
    uint32_t a[2][4][4];
    float sums[S::N] = {};

    load_steps<T, 0>(row, t, w);
    if constexpr (T::MINS) {                                                               /* runs while the first codes are decoded */
        const uint32_t mins[4] = {rows[0].mins, rows[1].mins, rows[0].mins, rows[1].mins}; /* for sums, and for their rounding errors */
        ptx_group_fence();
        ptx_group_mma_f16<false>(sums, mins, ptx_matrix_32(slot + S::SUMS_AT, GEMM_SUM_BYTES));
        ptx_group_close();
    }
    decode_steps<T, 0>(row, w, rows, t, a[0]);
    load_steps<T, 1>(row, t, w);
    if constexpr (T::MINS) {
        ptx_group_wait<0>();
        add_wgmma_sums<S>(total, sums, rows[0].min_factor, rows[1].min_factor);
    }
    multiply_steps<S, 0>(sums, a[0], x);
    decode_steps<T, 1>(row, w, rows, t, a[1]);
    multiply_steps<S, 1>(sums, a[1], x);
    ptx_group_wait<1>();
    load_no_earlier(); /* with four tiles and experts there are no free registers until a[0] has been multiplied */
    load_steps<T, 2>(row, t, w);
    decode_steps<T, 2>(row, w, rows, t, a[0]);
    load_steps<T, 3>(row, t, w);
    multiply_steps<S, 2>(sums, a[0], x);
    ptx_group_wait<1>();
    decode_steps<T, 3>(row, w, rows, t, a[1]);
    const float first = T::factor(row, rows[0]), second = T::factor(next, rows[1]);
    multiply_steps<S, 3>(sums, a[1], x);
    ptx_group_wait<0>();
    add_wgmma_sums<S>(total, sums, first, second);
}

/* Stores the partial sums of a run that is not whole. It has few instructions, since nothing is multiplied meanwhile. */
template <typename S>
static __device__ __forceinline__ void store_partial(const gemm_call &a, const gemm_run &run, int place, int row, int t,
                                                     const float (&total)[S::N])
{
    if (run.row_block * WGMMA_ROW_GROUPS + row / APR_ROW_GROUP >= a.n_row_groups) return;
    float *const to = a.partial + ((int64_t)place * (APR_SMALL_GEMM_TILE * a.n_here) + 2 * t) * WGMMA_ROWS + row;
#pragma unroll
    for (int i = 0; i < S::N; i++) {
        const int token = i / 4 * APR_SMALL_GEMM_TILE + i % 2, second = i / 2 % 2 * 8;
        if (i / 4 < a.n_here) to[token * WGMMA_ROWS + second] = total[i] * S::T::POWER;
    }
}

/* Ends a whole run: a lane has the sums of its two rows for two tokens of each tile. */
template <typename S>
static __device__ __forceinline__ void store_whole_run(const gemm_call &a, const gemm_run &run, int row, int t, const float *factors,
                                                       const float (&total)[S::N])
{
    const gemm_target to[2] = {target_of(a, run, 0, WGMMA_ROWS, row), target_of(a, run, 0, WGMMA_ROWS, row + 8)};
#pragma unroll
    for (int i = 0; i < S::N / 2; i++) {
        const int token = i / 2 * 8 + 2 * t + i % 2;
        store_sum(to[0], token, total[i / 2 * 4 + i % 2] * S::T::POWER, factors[token]);
        store_sum(to[1], token, total[i / 2 * 4 + 2 + i % 2] * S::T::POWER, factors[token]);
    }
}

/* Ends an expert's run: stores the sums; factors are applied later. */
template <typename S>
static __device__ __forceinline__ void store_expert_run(const gemm_call &a, const wgmma_run_end &end, const float (&total)[S::N])
{
    const unsigned thread = threadIdx.x; /* not as in the loop, or the compiler keeps the row in a register there */
    const int row = (int)(thread / 32 * APR_ROW_GROUP) + wgmma_row((int)(thread % 32 / 4)), token = (int)(thread % 4 * 2);
    gemm_run run = {};
    run.row_block = end.row_block, run.first_tile = end.first_tile, run.n_tiles = end.n_tiles, run.split = end.split;
#pragma unroll
    for (int second = 0; second < 2; second++) {
        load_no_earlier();
        const gemm_target to = target_of(a, run, 0, WGMMA_ROWS, row + 8 * second);
#pragma unroll
        for (int i = 0; i < S::N / 2; i++)
            store_sum(to, i / 2 * APR_SMALL_GEMM_TILE + token + i % 2, total[i / 2 * 4 + 2 * second + i % 2] * S::T::POWER, 1.0f);
    }
}

template <typename S> static __device__ __forceinline__ void consume_runs(const gemm_call &a, const uint8_t *ring, wgmma_barriers *b)
{
    int slot_and_parity = 0; /* twice the slot, plus the parity of its round, in one register */
    wgmma_run_end end = {0, 0, 0, 0, b->share.first == b->share.last};

#pragma unroll 1
    while (!end.is_last) {
        float total[S::N] = {};
#pragma unroll 1
        do {
            const int thread = thread_here(), row = thread / 32 * APR_ROW_GROUP + wgmma_row(thread % 32 / 4);
            const uint8_t *const stage = ring + __shfl_sync(0xffffffffu, slot_and_parity >> 1, 0) * S::BYTES;
            ptx_await_round(&b->full[slot_and_parity >> 1], slot_and_parity & 1);
            add_wgmma_stage<S>(stage, stage + row * S::T::BYTES, thread % 4, total);
            end = b->ends[slot_and_parity >> 1];
            __syncwarp();
            if (thread_here() % 32 == 0) ptx_arrive(&b->empty[slot_and_parity >> 1]);
            slot_and_parity += 2;
            if (slot_and_parity >> 1 == a.depth) slot_and_parity = (slot_and_parity & 1) ^ 1;
        } while (end.n_tiles == 0);
        store_expert_run<S>(a, end, total);
    }
}

template <typename S>
static __device__ __forceinline__ void consume_dense(const gemm_call &a, const gemm_share &share, const uint8_t *ring, wgmma_barriers *b)
{
    float total[S::N] = {};
    int slot = 0, parity = 0, to_go = share.end - share.begin, left = a.n_stages - share.begin % a.n_stages; /* stages of the row block */

    pdl_wait(); /* the output may still be in use */
#pragma unroll 1
    for (; to_go > 0; to_go--) {
        const int thread = thread_here(), lane = thread % 32, warp = thread / 32, row = warp * APR_ROW_GROUP + wgmma_row(lane / 4);
        const uint8_t *const stage = ring + __shfl_sync(0xffffffffu, slot, 0) * S::BYTES;
        ptx_await_round(&b->full[slot], parity);
        add_wgmma_stage<S>(stage, stage + row * S::T::BYTES, lane % 4, total);
        __syncwarp();
        if (lane == 0) ptx_arrive(&b->empty[slot]);
        if (++slot == a.depth) slot = 0, parity ^= 1;
        if (--left > 0 && to_go > 1) continue;
        left = a.n_stages;
        const int row_block = (share.end - to_go) / a.n_stages;
        const gemm_run run = dense_run_of(a, row_block, share);
        if (run.whole) store_whole_run<S>(a, run, row, lane % 4, b->factors, total);
        else store_partial<S>(a, run, 2 * (int)blockIdx.x + (row_block != share.first), row, lane % 4, total);
#pragma unroll
        for (int i = 0; i < S::N; i++) total[i] = 0.0f;
    }
}

#endif

/* --- the kernel --- */

/* EXPERTS: grouped; the runs are known once the previous kernels have finished. */
template <apr_dtype D, int TILES, bool EXPERTS>
static __global__ void __launch_bounds__(WGMMA_THREADS, 1) k_small_gemm_wgmma(const __grid_constant__ gemm_call a)
{
#if PTX_HAS_WARPGROUPS
    typedef wgmma_stage<D, TILES> S;
    extern __shared__ __align__(1024) uint8_t ring[];
    wgmma_barriers *const b = (wgmma_barriers *)(ring + a.depth * S::BYTES);

    pdl_trigger();
    if (EXPERTS) pdl_wait();
    if (threadIdx.x == 0)
        b->share = EXPERTS ? share_of(a, (int)blockIdx.x, (int)gridDim.x) : dense_share_of(a, (int)blockIdx.x, (int)gridDim.x);
    if ((int)threadIdx.x < a.depth) ptx_begin_barrier(&b->full[threadIdx.x], 1), ptx_begin_barrier(&b->empty[threadIdx.x], WGMMA_WARPS);
    ptx_show_barriers();
    __syncthreads();
    const bool copies = threadIdx.x / 32 == WGMMA_WARPS;
    if constexpr (EXPERTS) {
        if (copies) produce_runs<S>(a, b->share, ring, b, (int)threadIdx.x % 32);
        else consume_runs<S>(a, ring, b);
    } else {
        if (copies) produce_dense<S>(a, b->share, ring, b, (int)threadIdx.x % 32);
        else consume_dense<S>(a, b->share, ring, b);
    }
#else
    __trap(); /* not launched: the host queries the compiled architecture */
#endif
}

/* --- launching --- */

template <apr_dtype D, int TILES, bool EXPERTS>
static cudaError_t start_wgmma(const gemm_call &call, unsigned n_blocks, int shared_bytes, cudaStream_t stream)
{
    typedef wgmma_stage<D, TILES> S;
    void (*const kernel)(gemm_call) = k_small_gemm_wgmma<D, TILES, EXPERTS>;
    gemm_call a = call;
    const int fits = (shared_bytes - (int)sizeof(wgmma_barriers)) / S::BYTES;
    a.depth = fits < WGMMA_MAX_DEPTH ? fits : (int)WGMMA_MAX_DEPTH;
    if (a.depth < 2) return cudaErrorNotSupported;
    const int n_shared = a.depth * S::BYTES + (int)sizeof(wgmma_barriers);
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_shared);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return error;
    return launch_pdl(kernel, n_blocks, WGMMA_THREADS, (size_t)n_shared, stream, a);
}

#endif
