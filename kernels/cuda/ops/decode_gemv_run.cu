/* decode_gemv_run.cu - the decode GEMV as functions of a device: with error messages. */
#include "kernels/cuda/attention/attend.cuh"
#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/gemv/decode_gemv.cuh"

bool apr_cuda_has_decode_gemv(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in)
{
    int shared_bytes = 0;
    if (!apr_has_decode_gemv(dtype, n_out, n_in, apr_cuda_code_major())) return false;
    if (cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device->facts.ordinal) != cudaSuccess) return false;
    return apr_cuda_decode_gemv_fits(dtype, n_out, n_in, device->facts.n_sms, shared_bytes);
}

apr_status apr_cuda_run_to_tiles(apr_cuda_device *device, apr_dtype dtype, void *to, const void *rows, int64_t n_rows, int64_t n_in,
                                 apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "tiling weights");
    const cudaError_t error = apr_cuda_to_tiles(dtype, (const uint8_t *)rows, n_rows, n_in, (uint8_t *)to, device->stream);
    return apr_cuda_outcome(device, error, err);
}

/* A call's description for error messages: a static string, so that nothing is formatted unless it fails. */
static const char *words_of(const apr_decode_gemv_args *args)
{
    static const char *const words[] = {"decode GEMVs", "a decode GEMV, and a sum", "decode GEMVs, and their GLU"};
    return words[args->epilogue];
}

apr_status apr_cuda_run_decode_gemv(apr_cuda_device *device, const apr_decode_gemv_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, words_of(args));
    return apr_cuda_outcome(device, apr_cuda_decode_gemv(args, device->facts.n_sms, device->stream), err);
}

apr_status apr_cuda_run_decode_gemv_inputs(apr_cuda_device *device, const apr_decode_gemv_inputs *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "activations of decode GEMVs");
    return apr_cuda_outcome(device, apr_cuda_decode_gemv_prepare(args, device->stream), err);
}

apr_status apr_cuda_run_experts(apr_cuda_device *device, const apr_experts_args *args, const apr_decode_gemv_args *gemv, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "experts with decode GEMVs");
    return apr_cuda_outcome(device, apr_cuda_decode_gemv_experts(args, gemv, device->facts.n_sms, device->stream), err);
}

apr_status apr_cuda_run_qkv_epilogue(apr_cuda_device *device, const apr_qkv_epilogue_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "the QKV epilogue");
    return apr_cuda_outcome(device, apr_cuda_qkv_epilogue(args, device->stream), err);
}

/* The three operations one after another, where there is no fused kernel. */
static cudaError_t attend_unfused(const apr_qkv_epilogue_args *qkv, const apr_attend_args *args, const apr_decode_gemv_inputs *inputs,
                                  cudaStream_t stream)
{
    cudaError_t error = qkv != NULL ? apr_cuda_qkv_epilogue(qkv, stream) : cudaSuccess;
    if (error == cudaSuccess) error = apr_cuda_attend(args, stream);
    return error == cudaSuccess ? apr_cuda_decode_gemv_prepare(inputs, stream) : error;
}

apr_status apr_cuda_run_attend_to_i16(apr_cuda_device *device, const apr_qkv_epilogue_args *qkv, const apr_attend_args *args,
                                      uint8_t *activations_out, apr_error *err)
{
    const apr_decode_gemv_inputs inputs = {.n = args->n_heads * args->value_dim,
                                           .x = args->out,
                                           .norm = false,
                                           .eps = 0.0f,
                                           .gain_offset = 0.0f,
                                           .gain = NULL,
                                           .activations_out = activations_out,
                                           .out = NULL,
                                           .addend = NULL,
                                           .sum = NULL};

    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "attention, as activations of decode GEMVs");
    const cudaError_t error = qkv != NULL ? apr_cuda_qkv_and_attend(qkv, args, activations_out, device->stream)
                                          : apr_cuda_attend_to_i16(args, activations_out, device->stream);
    return apr_cuda_outcome(device, error == cudaErrorNotSupported ? attend_unfused(qkv, args, &inputs, device->stream) : error, err);
}
