/* abreast_end.cuh - products of tokens abreast whose sums are not joined as they are, but ended by whoever wants something of them. */
#ifndef APR_KERNELS_CUDA_ABREAST_END_CUH
#define APR_KERNELS_CUDA_ABREAST_END_CUH

#include "kernels/cuda/ops/abreast_kernel.cuh"

/* What comes behind a launch of products in place of the joining of sums: the call as it was launched, by so many blocks, with row blocks
 * of so many rows. */
typedef cudaError_t abreast_end(const void *what, const abreast_call &call, int n_blocks, int rows_of_block, cudaStream_t stream);
/* abreast.cu: dense products, each launch of at most APR_ABREAST_MOST_TILES tiles of tokens ended so. */
cudaError_t apr_cuda_abreast_ended(const apr_abreast_args *args, int n_multiprocessors, abreast_end *end, const void *what,
                                   cudaStream_t stream);

/* turn.cu: three parts, which are the queries, keys and values that a turn reads, joined where they are turned. Is there a kernel? */
bool apr_cuda_turns_products(const apr_turn_args *turn, const apr_abreast_args *args);
cudaError_t apr_cuda_turn_products(const apr_turn_args *turn, const abreast_call &call, int n_blocks, int rows_of_block,
                                   cudaStream_t stream);

#endif
