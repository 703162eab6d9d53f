/* small_gemm_plain.cu - the small GEMM of 16-bit floats (small_gemm_kernel.cuh). */
#include "kernels/cuda/small_gemm/small_gemm_kernel.cuh"

const gemm_kernels *apr_small_gemm_plain_kernels(apr_dtype dtype)
{
#define X(id) gemm_kernels_of<APR_##id>(),
    static const gemm_kernels all[] = {APR_SMALL_GEMM_PLAIN(X)};
#undef X
    for (const gemm_kernels &k : all)
        if (k.dtype == dtype) return &k;
    return NULL;
}
