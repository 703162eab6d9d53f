/* drills.cu - faults on role (kernels/cuda/drills.h): linked with all of the CUDA library into libaprkit-cuda-drills.so. */
extern "C" {
#include "kernels/cuda/drills.h"
}

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/gemm/blaslt.cuh"
#include "kernels/cuda/gemm/gemm.cuh"

static __global__ void write_far_away(uint8_t *near) { near[(size_t)1 << 45] = 1; }
static __global__ void wait_for(volatile int *never)
{
    while (*never == 0) {
    }
}

static apr_status run_kernel(apr_cuda_device *device, bool hangs, apr_error *err)
{
    void *data = NULL;
    apr_cuda_begin(device, "%s", hangs ? "a kernel that does not end" : "a kernel that writes out of bounds");
    cudaError_t e = cudaMalloc(&data, 256);
    if (e == cudaSuccess) e = cudaMemsetAsync(data, 0, 256, device->stream);
    if (e == cudaSuccess && hangs) wait_for<<<1, 1, 0, device->stream>>>((volatile int *)data);
    if (e == cudaSuccess && !hangs) write_far_away<<<1, 1, 0, device->stream>>>((uint8_t *)data);
    if (e == cudaSuccess) e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaStreamSynchronize(device->stream);
    return apr_cuda_outcome(device, e, err);
}

static apr_status multiply_badly(apr_cuda_device *device, apr_error *err)
{
    apr_cuda_gemm p = {};
    p.type = CUDA_R_16F;
    p.n_rows = p.out_stride = 64;
    p.n_tokens = 16;
    p.n_in = p.row_stride = -64; /* what no matrix has */
    if (device->blas == NULL) return apr_fail(err, APR_E_USAGE, "cuBLAS has not been started");
    const cublasStatus_t status = apr_cuda_multiply(device, &p);
    if (status == CUBLAS_STATUS_SUCCESS) return APR_OK;
    return apr_cuda_blas_failed(status, "linear f16 x f16, 16 tokens x [64, -64]", err);
}

extern "C" __attribute__((visibility("default"))) apr_status apr_cuda_drill_device(apr_cuda_device *device, apr_cuda_drill which,
                                                                                   apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    switch (which) {
    case APR_CUDA_DRILL_OUT_OF_BOUNDS: return run_kernel(device, false, err);
    case APR_CUDA_DRILL_HANG: return run_kernel(device, true, err);
    case APR_CUDA_DRILL_BAD_GEMM: return multiply_badly(device, err);
    default: return apr_fail(err, APR_E_USAGE, "there is no drill %d", (int)which);
    }
}
