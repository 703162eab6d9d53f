/* flow_run.cu - the decode GEMV as functions of a device: with error messages. */
#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/ops/attend.cuh"
#include "kernels/cuda/ops/flow.cuh"

bool apr_cuda_streams(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in)
{
    int shared_bytes = 0;
    if (!apr_flows(dtype, n_out, n_in, apr_cuda_code_major())) return false;
    if (cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device->facts.ordinal) != cudaSuccess) return false;
    return apr_cuda_flow_fits(dtype, n_out, n_in, device->facts.n_sms, shared_bytes);
}

apr_status apr_cuda_put_in_items(apr_cuda_device *device, apr_dtype dtype, void *to, const void *rows, int64_t n_rows, int64_t n_in,
                                 apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "tiling weights");
    const cudaError_t error = apr_cuda_to_items(dtype, (const uint8_t *)rows, n_rows, n_in, (uint8_t *)to, device->stream);
    return apr_cuda_outcome(device, error, err);
}

/* A call's description for error messages: a static string, so that nothing is formatted unless it fails. */
static const char *words_of(const apr_flow_args *args)
{
    static const char *const words[] = {"decode GEMVs", "a decode GEMV, and a sum", "decode GEMVs, and their GLU"};
    return words[args->ending];
}

apr_status apr_cuda_run_flow(apr_cuda_device *device, const apr_flow_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, words_of(args));
    return apr_cuda_outcome(device, apr_cuda_flow(args, device->facts.n_sms, device->stream), err);
}

apr_status apr_cuda_run_flow_inputs(apr_cuda_device *device, const apr_flow_inputs *args, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "activations of decode GEMVs");
    return apr_cuda_outcome(device, apr_cuda_flow_prepare(args, device->stream), err);
}

apr_status apr_cuda_run_experts(apr_cuda_device *device, const apr_experts_args *args, const apr_flow_args *gemv, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "experts with decode GEMVs");
    return apr_cuda_outcome(device, apr_cuda_flow_experts(args, gemv, device->facts.n_sms, device->stream), err);
}

apr_status apr_cuda_run_turn(apr_cuda_device *device, const apr_turn_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "the QKV epilogue");
    return apr_cuda_outcome(device, apr_cuda_turn(args, device->stream), err);
}

/* The three operations one after another, where there is no fused kernel. */
static cudaError_t attend_unfused(const apr_turn_args *qkv, const apr_attend_args *args, const apr_flow_inputs *inputs, cudaStream_t stream)
{
    cudaError_t error = qkv != NULL ? apr_cuda_turn(qkv, stream) : cudaSuccess;
    if (error == cudaSuccess) error = apr_cuda_attend(args, stream);
    return error == cudaSuccess ? apr_cuda_flow_prepare(inputs, stream) : error;
}

apr_status apr_cuda_run_attend_to_planes(apr_cuda_device *device, const apr_turn_args *qkv, const apr_attend_args *args, uint8_t *planes,
                                         apr_error *err)
{
    const apr_flow_inputs inputs = {.n = args->n_heads * args->value_dim,
                                    .x = args->out,
                                    .norm = false,
                                    .eps = 0.0f,
                                    .gain_offset = 0.0f,
                                    .gain = NULL,
                                    .planes = planes,
                                    .out = NULL};

    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "attention, as activations of decode GEMVs");
    const cudaError_t error =
        qkv != NULL ? apr_cuda_turn_and_attend(qkv, args, planes, device->stream) : apr_cuda_attend_to_planes(args, planes, device->stream);
    return apr_cuda_outcome(device, error == cudaErrorNotSupported ? attend_unfused(qkv, args, &inputs, device->stream) : error, err);
}
