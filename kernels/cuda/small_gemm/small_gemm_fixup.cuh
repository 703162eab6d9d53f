/* small_gemm_fixup.cuh - the stream-K fix-up inside other kernels: adds partial sums, four rows at a time, in the order in which small_gemm.cu
 * does. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_FIXUP_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_FIXUP_CUH

#include "kernels/cuda/small_gemm/small_gemm_epilogue.cuh"

/* Where a row block's partial sums are: n_sums thread blocks of the launch have one each, the first one's is at first_place. n_sums 0: the
 * rows' final sums are in the output. */
typedef struct fixup_source {
    int first_place, n_sums;
} fixup_source;

static __device__ __forceinline__ fixup_source fixup_source_of(const gemm_call &a, int n_blocks, int row_block)
{
    const int n_all = a.n_row_blocks * a.n_stages;
    if (row_block >= a.n_row_blocks) return fixup_source{0, 0};
    const int first = gemm_block_of(n_all, n_blocks, row_block * a.n_stages);
    const int last = gemm_block_of(n_all, n_blocks, row_block * a.n_stages + a.n_stages - 1);
    if (first == last) return fixup_source{0, 0};
    return fixup_source{gemm_place(n_all, n_blocks, a.n_stages, first, row_block), last - first + 1};
}

static __device__ __forceinline__ float4 add4(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/* Four consecutive rows of a token: n_sums partial sums, the first at `first`, the second at `next`, and each other one `step` numbers
 * further. n_sums 0: the final sums are at `first`. */
typedef struct fixup_source4 {
    const float *first, *next;
    int64_t step;
    int n_sums;
} fixup_source4;

/* Rows from `row` on, counted over all parts; token: of the launch. `there`: their final sums in the output. */
static __device__ __forceinline__ fixup_source4 fixup_source4_of(const gemm_call &a, const fixup_source &j, int shift, int row, int token,
                                                                 const float *there)
{
    if (j.n_sums == 0) return fixup_source4{there, there, 0, 0};
    const int64_t place_step = (int64_t)(APR_SMALL_GEMM_TILE * a.n_here) << shift;
    const float *const sums = a.partial + ((int64_t)token << shift) + (row & ((1 << shift) - 1));
    return fixup_source4{sums + j.first_place * place_step, sums + (j.first_place / 2 + 1) * 2 * place_step, 2 * place_step, j.n_sums};
}

static __device__ __forceinline__ float4 load_partial(const fixup_source4 &s, int i)
{
    if (i > 0 && i >= s.n_sums) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return __ldcg((const float4 *)(i == 0 ? s.first : s.next + (i - 1) * s.step));
}

/* The four finished numbers; v has their first AT_ONCE partial sums. bias: of the part's rows, or NULL. */
template <int AT_ONCE>
static __device__ __forceinline__ float4 finish_sum4(const fixup_source4 &s, const float4 (&v)[AT_ONCE], float factor, const float *bias,
                                                     int row)
{
    if (s.n_sums == 0) return v[0];
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) sum = add4(sum, v[i]);
#pragma unroll 1
    for (int base = AT_ONCE; base < s.n_sums; base += AT_ONCE) {
        float4 more[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) more[i] = load_partial(s, base + i);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) sum = add4(sum, more[i]);
    }
    float b[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < 4 && bias != NULL; i++) b[i] = bias[row + i];
    return make_float4(fmaf(sum.x, factor, b[0]), fmaf(sum.y, factor, b[1]), fmaf(sum.z, factor, b[2]), fmaf(sum.w, factor, b[3]));
}

#endif
