/* attend.cuh - attention in tiles: what its kernels and launchers share. */
#ifndef APR_KERNELS_CUDA_ATTEND_CUH
#define APR_KERNELS_CUDA_ATTEND_CUH

#include "kernels/cuda/ops/ops.cuh"

/* Lower than any score, and finite: differences of two are 0, not NaN. */
#define ATTEND_LOWEST (-1e30f)

/* Where parts of the context leave what they found; sums is NULL when there is one part, which writes the result itself.
 * Largest scores are in units of log2. */
typedef struct attend_parts {
    float *sums;             /* [n_parts, n_tokens * n_heads, head_dim] */
    float *largest, *weight; /* [n_parts, n_tokens * n_heads] */
    int n_parts;
} attend_parts;

/* The first position that a token sees. */
static __host__ __device__ inline int64_t first_seen(const apr_attend_args &a, int64_t token)
{
    const int64_t last = a.position + token;
    return a.window > 0 && last >= a.window ? last - a.window + 1 : 0;
}

/* cudaErrorNotSupported: not for this shape or type of cache; attend.cu has the way that is always right. */
cudaError_t apr_cuda_attend_tiles(const apr_attend_args *args, cudaStream_t stream);

#endif
