/* attend_join.cuh - parts of the context are joined by the block that finishes last, in the order of the parts.
 *
 * Each part has a word in the workspace, which holds anything at first. A block that has written its sums sets its word to the mark, then
 * looks at all words of its set: who sees all marks, joins, and takes the marks away for the next launch. The last one to set its mark
 * sees all of them, unless somebody has joined already; if two see them, both write the same bits. */
#ifndef APR_KERNELS_CUDA_ATTEND_JOIN_CUH
#define APR_KERNELS_CUDA_ATTEND_JOIN_CUH

#include "kernels/cuda/ops/attend.cuh"
#include "kernels/cuda/ops/mma.cuh"
#include "kernels/cuda/ops/reduce.cuh"

/* Nothing that other operations leave in the workspace: as two float32 it is two NaNs of no arithmetic, as FP16 and int8 noise. */
#define ATTEND_MARK 0xffa5c3967f9e3d6bull

/* Called by all threads when the part's sums are written: is this the block that joins? `done` has n_used words. */
static __device__ __forceinline__ bool comes_last(uint64_t *done, int part, int n_used)
{
    __shared__ bool all_there;
    volatile uint64_t *const marks = done;
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            __threadfence(); /* what the block wrote is seen before its mark */
            marks[part] = ATTEND_MARK;
        }
        __syncwarp();
        __threadfence(); /* the mark before the others are looked at */
        bool there = true;
        for (int i = threadIdx.x; i < n_used; i += 32) there = there && marks[i] == ATTEND_MARK;
        __threadfence(); /* the marks before the sums */
        there = __all_sync(0xffffffffu, there);
        if (threadIdx.x == 0) all_there = there;
    }
    __syncthreads();
    if (!all_there) return false;
    for (int i = threadIdx.x; i < n_used; i += blockDim.x) marks[i] = 0;
    return true;
}

/* A warp joins one row: lane l the columns 4 l ..., 4 (l + 32) ...; of the parts' factors it has those of parts l and l + 32. It asks for
 * AT_ONCE parts' sums at a time, and for the first before anything is known of their factors: a trip to memory takes longer than the
 * rest. */

template <int AT_ONCE>
static __device__ __forceinline__ void load_parts(const float *sums, int64_t stride, int first, int n_used, bool mine, float4 (&v)[AT_ONCE])
{
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++)
        v[j] = mine && first + j < n_used ? __ldcg((const float4 *)(sums + (first + j) * stride)) : make_float4(0, 0, 0, 0);
}

template <int AT_ONCE>
static __device__ __forceinline__ void join_row(const apr_attend_args &a, const attend_parts &parts, int n_used, int row)
{
    const int lane = threadIdx.x % 32, value_dim = (int)a.value_dim;
    const int64_t n_rows = a.n_tokens * a.n_heads, stride = n_rows * value_dim;
    const float *const sums = parts.sums + (int64_t)row * value_dim;
    float4 v[AT_ONCE];
    float largest[2], factors[2], weight = 0.0f, sink_factor;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int i = lane + 32 * k;
        largest[k] = i < n_used ? __ldcg(parts.largest + i * n_rows + row) : ATTEND_LOWEST;
        factors[k] = i < n_used ? __ldcg(parts.weight + i * n_rows + row) : 0.0f;
    }
    load_parts(sums + 4 * lane, stride, 0, n_used, 4 * lane < value_dim, v);
    const float most = warp_max(fmaxf(largest[0], largest[1]));
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const float factor = power_of_two(largest[k] - most);
        weight = fmaf(factor, factors[k], weight);
        factors[k] = factor;
    }
    weight = with_sink(a, row % (int)a.n_heads, most, warp_sum(weight), &sink_factor);
    const float factor = sink_factor / weight;
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
        leave_answer(a, parts, row, column, mine, make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor));
    }
}

#endif
