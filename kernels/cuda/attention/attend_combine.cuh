/* attend_combine.cuh - combines the parts of the context, always in the same order: in a kernel of its own (combine_columns), or, where that
 * would need one such kernel for each of many tokens, in the last thread block to finish (is_last_block, combine_row).
 *
 * For the latter each part has a 64-bit flag in the workspace, with arbitrary contents at first. A block that has written its sums sets its
 * flag to the mark, then reads all flags of its set. A block that sees all marks combines the parts, and clears the marks for the next
 * launch. The last block to set its mark sees all of them, unless another block has already combined. If two blocks see them all, both
 * write the same bits. */
#ifndef APR_KERNELS_CUDA_ATTEND_COMBINE_CUH
#define APR_KERNELS_CUDA_ATTEND_COMBINE_CUH

#include "kernels/cuda/attention/attend.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/reduce.cuh"

/* A value that other operations do not leave in the workspace: as two float32 it is two NaNs that no arithmetic gives, as FP16 or int8
 * noise. */
#define ATTEND_MARK 0xffa5c3967f9e3d6bull

/* Called by all threads after the part's sums are written; returns whether this block combines. `done` has n_used flags. */
static __device__ __forceinline__ bool is_last_block(uint64_t *done, int part, int n_used)
{
    __shared__ bool all_there;
    volatile uint64_t *const marks = done;
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            __threadfence(); /* the block's writes are visible before its mark */
            marks[part] = ATTEND_MARK;
        }
        __syncwarp();
        __threadfence(); /* the mark is visible before the others are read */
        bool there = true;
        for (int i = threadIdx.x; i < n_used; i += 32) there = there && marks[i] == ATTEND_MARK;
        __threadfence(); /* marks are read before sums */
        there = __all_sync(0xffffffffu, there);
        if (threadIdx.x == 0) all_there = there;
    }
    __syncthreads();
    if (!all_there) return false;
    for (int i = threadIdx.x; i < n_used; i += blockDim.x) marks[i] = 0;
    return true;
}

/* Largest score and weight of a row's parts: lane l has parts l and l + 32. */
typedef struct attend_compared {
    float largest[2], weight[2];
} attend_compared;

static __device__ __forceinline__ attend_compared load_compared(const attend_parts &parts, int64_t n_rows, int row, int n_used)
{
    attend_compared c;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int i = threadIdx.x % 32 + 32 * k;
        c.largest[k] = i < n_used ? __ldcg(parts.largest + i * n_rows + row) : ATTEND_LOWEST;
        c.weight[k] = i < n_used ? __ldcg(parts.weight + i * n_rows + row) : 0.0f;
    }
    return c;
}

/* Factors of a row's parts, for the lane's own parts; returns the factor of their sum. */
static __device__ __forceinline__ float factors_of(const apr_attend_args &a, int row, const attend_compared &c, float (&factors)[2])
{
    const float max_score = warp_max(fmaxf(c.largest[0], c.largest[1]));
    float weight = 0.0f, sink_factor;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        factors[k] = power_of_two(c.largest[k] - max_score);
        weight = fmaf(factors[k], c.weight[k], weight);
    }
    weight = with_sink(a, row, max_score, warp_sum(weight), &sink_factor);
    return sink_factor / weight;
}

/* A warp combines one row: lane l has the columns 4 l ..., 4 (l + 32) ... It loads the sums of AT_ONCE parts at a time, the first of them
 * before their factors are known, since memory latency is longer than all the rest. */

template <int AT_ONCE>
static __device__ __forceinline__ void load_parts(const float *sums, int64_t stride, int first, int n_used, bool mine, float4 (&v)[AT_ONCE])
{
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++)
        v[j] = mine && first + j < n_used ? __ldcg((const float4 *)(sums + (first + j) * stride)) : make_float4(0, 0, 0, 0);
}

template <int AT_ONCE>
static __device__ __forceinline__ void combine_row(const apr_attend_args &a, const attend_parts &parts, int n_used, int row)
{
    const int lane = threadIdx.x % 32, value_dim = (int)a.value_dim;
    const int64_t n_rows = a.n_tokens * a.n_heads, stride = n_rows * value_dim;
    const float *const sums = parts.sums + (int64_t)row * value_dim;
    const attend_compared compared = load_compared(parts, n_rows, row, n_used);
    float4 v[AT_ONCE];
    float factors[2];
    load_parts(sums + 4 * lane, stride, 0, n_used, 4 * lane < value_dim, v);
    const float factor = factors_of(a, row, compared, factors);
    for (int begin = 0; begin < value_dim; begin += 128) {
        const int column = begin + 4 * lane;
        const bool mine = column < value_dim;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int first = 0; first < n_used; first += AT_ONCE) {
            if (begin + first > 0) load_parts(sums + column, stride, first, n_used, mine, v);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                const float f = __shfl_sync(0xffffffffu, first < 32 ? factors[0] : factors[1], (first + j) % 32);
                sum = make_float4(fmaf(f, v[j].x, sum.x), fmaf(f, v[j].y, sum.y), fmaf(f, v[j].z, sum.z), fmaf(f, v[j].w, sum.w));
            }
        }
        write_output(a, parts, row, column, mine, make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor));
    }
}

/* A thread block combines one row: COMBINERS threads per column, each with every COMBINERS-th part, all loaded at once. Their sums are
 * added in order. `width`: columns, rounded up to whole warps. */
enum { COMBINERS = 4, COMBINED_COLUMNS = 256 };

static __device__ __forceinline__ void combine_columns(const apr_attend_args &a, const attend_parts &parts, int n_used, int row, int width)
{
    enum { MOST = APR_CUDA_ATTEND_SPLITS / COMBINERS, AT_ONCE = 4 };
    __shared__ float shared_sums[COMBINERS * COMBINED_COLUMNS];
    const int group = (int)threadIdx.x / width, column = (int)threadIdx.x - group * width, value_dim = (int)a.value_dim;
    const int n_rows = (int)(a.n_tokens * a.n_heads);
    const bool mine = column < value_dim;
    const float *const from = parts.sums + ((int64_t)group * n_rows + row) * value_dim + (mine ? column : 0);
    const int64_t stride = (int64_t)COMBINERS * n_rows * value_dim;
    const attend_compared compared = load_compared(parts, n_rows, row, n_used);
    float v[MOST], factors[2], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < MOST; i += AT_ONCE)
        if (COMBINERS * i < n_used) {
#pragma unroll
            for (int j = i; j < i + AT_ONCE; j++) v[j] = COMBINERS * j + group < n_used ? __ldcg(from + j * stride) : 0.0f;
        }
    const float factor = factors_of(a, row, compared, factors);
#pragma unroll
    for (int i = 0; i < MOST; i += AT_ONCE)
        if (COMBINERS * i < n_used) {
#pragma unroll
            for (int j = i; j < i + AT_ONCE; j++) /* lanes beyond the parts have factor 0 */
                sum = fmaf(__shfl_sync(0xffffffffu, factors[COMBINERS * j / 32], COMBINERS * j % 32 + group), v[j], sum);
        }
    pdl_trigger();
    shared_sums[threadIdx.x] = sum;
    __syncthreads();
    if (group > 0) return;
#pragma unroll
    for (int i = 1; i < COMBINERS; i++) sum += shared_sums[i * width + column];
    const float value = sum * factor;
    if (mine && a.out != NULL) a.out[(int64_t)row * value_dim + column] = value;
    if (parts.activations_out != NULL) store_i16(parts.activations_out, (int64_t)row * value_dim + column, mine, value);
}

#endif
