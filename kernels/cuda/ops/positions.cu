/* positions.cu - rows of a table of learned positions. */
#include "kernels/cuda/common/dequantize.cuh"
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/common/pdl.cuh"

enum { BLOCK = 128 };

static __global__ void __launch_bounds__(BLOCK) k_rows(const __grid_constant__ apr_positions_args a, int32_t *rows)
{
    pdl_trigger_and_wait();
    const int64_t t = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (t < a.n_tokens) rows[t] = (int32_t)(a.first + position_of_token(a.position, a.position_at, a.per_sequence, t));
}

/* The numbers of the rows may be known on the device only (position_at). */
cudaError_t apr_cuda_positions(const apr_positions_args *args, cudaStream_t stream)
{
    int32_t *const rows = (int32_t *)(void *)args->work.data;
    dequantize_args a;
    if (!apr_cuda_view(args->table, &a.weight) || a.weight.n_in != args->width) return cudaErrorInvalidValue;
    if (args->n_tokens == 0) return cudaSuccess;
    launch_pdl(k_rows, blocks_of(args->n_tokens, BLOCK), BLOCK, 0, stream, *args, rows);
    a.ids = rows;
    a.first = 0;
    a.n_rows = args->n_tokens;
    a.out = args->out;
    return apr_cuda_dequantize(a, args->table->dtype, APR_F32, stream);
}
