/* abreast_plain.cu - the small GEMM of 16-bit floats (abreast_kernel.cuh). */
#include "kernels/cuda/ops/abreast_kernel.cuh"

const gemm_kernels *apr_abreast_plain_kernels(apr_dtype dtype)
{
#define X(id) gemm_kernels_of<APR_##id>(),
    static const gemm_kernels all[] = {APR_ABREAST_PLAIN(X)};
#undef X
    for (const gemm_kernels &k : all)
        if (k.dtype == dtype) return &k;
    return NULL;
}
