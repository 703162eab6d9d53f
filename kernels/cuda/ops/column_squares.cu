/* column_squares.cu - sums of squares of each column of rows of activations, which an importance matrix is made of.
 *
 * A thread has one column, and adds the rows' squares in their order. The square of a float32 is exact in float64, so the sums have the bits
 * of the host's loop (runtime/calibrate/importance_pass.c). */
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/common/pdl.cuh"
#include "kernels/cuda/device/device.cuh"

enum {
    BLOCK = 32,
    AT_ONCE = 32
}; /* columns of a block, so that many blocks share the work; rows that are loaded before the first is added */

static __global__ void __launch_bounds__(BLOCK) k_column_squares(const float *x, int64_t n_rows, int64_t width, double *sums)
{
    pdl_trigger_and_wait();
    const int64_t column = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (column >= width) return;
    const float *from = x + column;
    double sum = sums[column];
    int64_t left = n_rows;
    for (; left >= AT_ONCE; left -= AT_ONCE, from += AT_ONCE * width) {
        float some[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) some[i] = from[i * width];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) sum += (double)some[i] * (double)some[i];
    }
    for (; left > 0; left--, from += width) sum += (double)*from * (double)*from;
    sums[column] = sum;
}

apr_status apr_cuda_column_squares(apr_cuda_device *device, const float *x, int64_t n_rows, int64_t width, double *sums, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "sums of squares of columns");
    if (n_rows > 0 && width > 0) launch_pdl(k_column_squares, blocks_of(width, BLOCK), BLOCK, 0, device->stream, x, n_rows, width, sums);
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}
