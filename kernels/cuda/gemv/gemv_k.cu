/* gemv_k.cu - GEMV of a few tokens for the types with blocks of 256. */
#include "kernels/cuda/gemv/gemv.cuh"

gemv_fn gemv_of_k_type(apr_dtype dtype)
{
    switch ((int)dtype) {
        APR_CUDA_K(GEMV_CASE)
    default: return NULL;
    }
}
