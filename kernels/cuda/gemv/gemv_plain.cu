/* gemv_plain.cu - GEMV of a few tokens for plain numbers, FP8 and the flat types: rows of any length. */
#include "kernels/cuda/gemv/gemv.cuh"

gemv_fn gemv_of_plain_type(apr_dtype dtype)
{
    switch ((int)dtype) {
        APR_CUDA_PLAIN(GEMV_PLAIN_CASE)
    default: return NULL;
    }
}
