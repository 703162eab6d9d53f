/* gemv_blocks.cu - GEMV of a few tokens for the types with blocks of 32 and 64. */
#include "kernels/cuda/gemv/gemv.cuh"

gemv_fn gemv_of_blocks_type(apr_dtype dtype)
{
    switch ((int)dtype) {
        APR_CUDA_BLOCKS(GEMV_CASE)
    default: return NULL;
    }
}
