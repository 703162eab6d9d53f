/* attend.cuh - attention in tiles: what its kernels and launchers share. */
#ifndef APR_KERNELS_CUDA_ATTEND_CUH
#define APR_KERNELS_CUDA_ATTEND_CUH

#include "kernels/cuda/ops/ops.cuh"

/* Lower than any score, and finite: differences of two are 0, not NaN. */
#define ATTEND_LOWEST (-1e30f)

/* Where parts of the context leave what they found; sums is NULL when there is one part, which writes the result itself.
 * Largest scores are in units of log2. */
typedef struct attend_parts {
    float *sums;             /* [n_parts, n_tokens * n_heads, value_dim] */
    float *largest, *weight; /* [n_parts, n_tokens * n_heads] */
    int n_parts;
} attend_parts;

/* The first position that a token sees. */
static __host__ __device__ inline int64_t first_seen(const apr_attend_args &a, int64_t position, int64_t token)
{
    return apr_attend_first(&a, position + token);
}

/* Positions that the first tokens see together, for cutting them into parts: all that the cache holds where only the device knows. */
static inline int64_t positions_seen(const apr_attend_args *a)
{
    return a->position_at != NULL ? a->keys.n_cells : a->position + a->n_tokens - first_seen(*a, a->position, 0);
}

/* Scores are in units of log2, so that weights are powers of two. */
#define ATTEND_LOG2_E 1.44269504088896341f

/* A product of a query with a key as a score. */
static __device__ __forceinline__ float score_of(const apr_attend_args &a, float dot)
{
    if (a.softcap > 0.0f) return a.softcap * tanhf(dot * a.scale / a.softcap) * ATTEND_LOG2_E;
    return dot * (a.scale * ATTEND_LOG2_E);
}

/* What the sums of a query row are divided by, once the head's sink has taken part; *factor scales the sums. */
static __device__ __forceinline__ float with_sink(const apr_attend_args &a, int64_t head, float largest, float weight, float *factor)
{
    *factor = 1.0f;
    if (a.sinks == NULL) return weight;
    const float sink = a.sinks[head] * ATTEND_LOG2_E, most = fmaxf(largest, sink);
    *factor = exp2f(largest - most);
    return weight * *factor + exp2f(sink - most);
}

/* How many parts: enough blocks to fill a GPU, no part without a tile, no more than the workspace holds; of many tokens one. */
attend_parts apr_cuda_cut_context(const apr_attend_args *args, int64_t n_blocks, int64_t n_tiles);
/* The parts' sums, weighted by how their largest scores compare, into the result. */
cudaError_t apr_cuda_join_parts(const apr_attend_args *args, const attend_parts *parts, cudaStream_t stream);

/* cudaErrorNotSupported: not for this shape or type of cache; attend.cu has the way that is always right. */
cudaError_t apr_cuda_attend_tiles(const apr_attend_args *args, cudaStream_t stream);

#endif
