/* small_gemm_experts.cuh - the sum of a token's chosen experts (small_gemm.cuh), in one order of operations for all kernels. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_EXPERTS_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_EXPERTS_CUH

#include "kernels/cuda/small_gemm/small_gemm.cuh"
#include "kernels/cuda/small_gemm/small_gemm_layout.cuh"

/* One of a token's experts. */
typedef struct expert_term {
    int slot, expert;
    float factor, weight;
} expert_term;

static __device__ __forceinline__ expert_term expert_term_of(const apr_small_gemm_experts &e, int64_t token, int rank)
{
    const float *const route = e.routes + token * apr_route_row(e.n_used);
    const int slot = read_now(e.slot_of + token * e.n_used + rank);
    return expert_term{slot, (int)read_now(route + rank), read_now(e.factors + slot),
                       e.weight_on_input ? 1.0f : read_now(route + e.n_used + rank)};
}

/* Sums times a factor, plus the rows' biases, of any alignment; NULL: none. */
static __device__ __forceinline__ float4 scaled(float4 v, float factor, const float *bias)
{
    if (bias == NULL) return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
    return make_float4(v.x * factor + bias[0], v.y * factor + bias[1], v.z * factor + bias[2], v.w * factor + bias[3]);
}

/* Adds rows [row, row + 4) of N experts to a token's sum, whose loads are in flight together; the last ones may not be there. */
template <int N>
static __device__ __forceinline__ float4 add_experts4(const apr_small_gemm_experts &e, const expert_term *terms, int n_terms, int64_t row,
                                                      float4 sum)
{
    float4 total[N] = {};
#pragma unroll 1
    for (int s = 0; s < e.splits; s++) {
        const float *const from = e.sums + s * e.n_slots * e.n_out + row;
        float4 part[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            part[i] = i < n_terms ? read_now((const float4 *)(from + terms[i].slot * e.n_out)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < N; i++)
            total[i] = make_float4(total[i].x + part[i].x, total[i].y + part[i].y, total[i].z + part[i].z, total[i].w + part[i].w);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i >= n_terms) continue;
        const float4 y = scaled(total[i], terms[i].factor, e.bias != NULL ? e.bias + terms[i].expert * e.n_out + row : NULL);
        const float w = terms[i].weight;
        sum = make_float4(fmaf(y.x, w, sum.x), fmaf(y.y, w, sum.y), fmaf(y.z, w, sum.z), fmaf(y.w, w, sum.w));
    }
    return sum;
}

#endif
