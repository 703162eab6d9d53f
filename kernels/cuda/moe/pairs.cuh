/* pairs.cuh - tokens sorted by the experts they are routed to. Each pair of a token and a chosen expert gets a slot. An expert's slots
 * begin at a tile of 8 and are padded to whole tiles. Which slot a pair gets affects only where its numbers are, not their values. */
#ifndef APR_KERNELS_CUDA_PAIRS_CUH
#define APR_KERNELS_CUDA_PAIRS_CUH

#include "kernels/cuda/small_gemm/small_gemm.cuh"

/* Tables on the device. */
typedef struct apr_pairs {
    int *slot_of;                 /* [n_tokens * n_used] */
    int *token_of;                /* [8 * apr_pairs_max_tiles]; -1: an unused slot; only of apr_cuda_sort_pairs */
    apr_small_gemm_group *groups; /* [apr_pairs_max_tiles] */
    int *n_groups;
} apr_pairs;

/* Groups of up to group_tiles tiles. */
cudaError_t apr_cuda_sort_pairs(const float *routes, int64_t n_tokens, int64_t n_used, int64_t n_experts, int group_tiles,
                                const apr_pairs *to, cudaStream_t stream);

/* The same for few tokens, and writes x[n_tokens, to->n_x] into their slots: inputs of unused slots are left as they are, since they affect
 * only sums that are not read. cudaErrorNotSupported: too many tokens, or too wide. */
cudaError_t apr_cuda_sort_few_pairs(const float *routes, int64_t n_tokens, int64_t n_used, int64_t n_experts, int group_tiles,
                                    const float *x, const apr_pairs *pairs, const apr_small_gemm_inputs *to, cudaStream_t stream);

/* The experts operation (kernels/op_args.h) with the small GEMM; with up to 64 tokens it is batch invariant. cudaErrorNotSupported: no
 * kernel for these matrices, or no room in the workspace; nothing was started. */
cudaError_t apr_cuda_experts_small_gemm(const apr_experts_args *args, int n_multiprocessors, int major, cudaStream_t stream);
/* The same for up to 64 rows of a step, with what follows (kernels/cuda/rows_args.h). */
cudaError_t apr_cuda_experts_small_gemm_rows(const apr_rows_experts *args, int n_multiprocessors, int major, cudaStream_t stream);

#endif
