/* rows_run.cu - small GEMMs of a decode batch as functions of a device: which matrices have them, and error messages. */
#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/small_gemm/small_gemm.cuh"

enum { CLUSTERS_SINCE = 9 }; /* minimum compute capability (major) */

bool apr_cuda_has_rows(const apr_cuda_device *device, const apr_tensor *w, int64_t n_out, int64_t n_in, int64_t widest,
                       const apr_workspace *work)
{
    const bool is_plain = w->packing == NULL && w->scale == NULL && w->pending.kind == APR_STEP_NONE && (uintptr_t)w->data % 16 == 0;
    const bool has_room =
        (uintptr_t)work->data % 256 == 0 && apr_cuda_rows_bytes(widest, device->facts.n_sms) <= work->slice * sizeof(float);
    return is_plain && has_room && apr_cuda_code_major() >= CLUSTERS_SINCE && !device->tiles && widest <= UINT16_MAX && n_in % 32 == 0 &&
           apr_cuda_has_small_gemm(w->dtype, w->tiled, n_out, apr_small_gemm_columns_of(w, n_in), apr_cuda_code_major()) &&
           apr_cuda_small_gemm_group_tiles(w->dtype, APR_SMALL_GEMM_MAX_TOKENS) > 0;
}

/* Ends an operation: waits if the device checks each one. */
static apr_status outcome(apr_cuda_device *device, cudaError_t error, apr_error *err)
{
    if (error == cudaSuccess && device->options.check_each) error = cudaStreamSynchronize(device->stream);
    return apr_cuda_outcome(device, error, err);
}

apr_status apr_cuda_run_rows(apr_cuda_device *device, const apr_rows_args *args, apr_error *err)
{
    static const char *const words[] = {"small GEMMs of a batch", "a small GEMM of a batch, and a sum",
                                        "small GEMMs of a batch, and their GLU"};
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, words[args->epilogue]);
    return outcome(device, apr_cuda_small_gemm_rows(args, device->facts.n_sms, device->stream), err);
}

apr_status apr_cuda_run_rows_inputs(apr_cuda_device *device, const apr_rows_inputs *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "inputs of small GEMMs of a batch");
    return outcome(device, apr_cuda_small_gemm_rows_inputs(args, device->stream), err);
}
