/* embed.cu - rows of the embedding table. */
#include "kernels/cuda/common/dequantize.cuh"

cudaError_t apr_cuda_embed(const apr_embed_args *args, cudaStream_t stream)
{
    dequantize_args a;
    if (!apr_cuda_view(args->table, &a.weight) || a.weight.n_in != args->width) return cudaErrorInvalidValue;
    a.ids = args->ids;
    a.first = 0;
    a.n_rows = args->n_tokens;
    a.out = args->out;
    return apr_cuda_dequantize(a, args->table->dtype, APR_F32, stream);
}
