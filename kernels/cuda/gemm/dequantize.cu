/* dequantize.cu - dequantizes rows of a matrix to F16, BF16 or F32, for cuBLAS. */
#include "kernels/cuda/common/dequantize.cuh"

typedef cudaError_t (*dequantize_fn)(const dequantize_args &args, apr_dtype to, cudaStream_t stream);

/* clang-format off */
#define DEQUANTIZE_CASE(id)       case APR_##id: return dequantize_of<APR_##id>;
#define DEQUANTIZE_PLAIN_CASE(id) case APR_##id: return dequantize_of_plain<APR_##id>;
/* clang-format on */

static dequantize_fn dequantize_of_type(apr_dtype dtype)
{
    switch ((int)dtype) {
        APR_CUDA_BLOCKS(DEQUANTIZE_CASE)
        APR_CUDA_K(DEQUANTIZE_CASE)
        APR_CUDA_PLAIN(DEQUANTIZE_PLAIN_CASE)
    default: return NULL;
    }
}

cudaError_t apr_cuda_dequantize(const dequantize_args &args, apr_dtype from, apr_dtype to, cudaStream_t stream)
{
    const dequantize_fn start = args.weight.canonical.bits > 0 ? dequantize_of_canonical : dequantize_of_type(from);
    if (args.n_rows == 0) return cudaSuccess;
    return start != NULL ? start(args, to, stream) : cudaErrorNotSupported;
}

cudaError_t apr_cuda_decode(const apr_tensor *matrix, int64_t first, int64_t n_rows, apr_dtype to, void *out, cudaStream_t stream)
{
    dequantize_args a;
    if (!apr_cuda_view(matrix, &a.weight) || first < 0 || n_rows < 0 || n_rows > a.weight.n_rows - first) return cudaErrorInvalidValue;
    if (to != APR_F16 && to != APR_BF16 && to != APR_F32) return cudaErrorInvalidValue;
    a.ids = NULL;
    a.first = first;
    a.n_rows = n_rows;
    a.out = out;
    return apr_cuda_dequantize(a, matrix->dtype, to, stream);
}
