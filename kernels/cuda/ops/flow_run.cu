/* flow_run.cu - products that stream, as a device's functions: errors in sentences, weights on their way into items. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/ops/flow.cuh"

enum { DEPENDENT_LAUNCH = 9 }; /* the capability that has it */

bool apr_cuda_streams(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in)
{
    int shared_bytes = 0;
    if (!apr_flows(dtype, n_out, n_in, device->facts.major)) return false;
    if (cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device->facts.ordinal) != cudaSuccess) return false;
    return apr_cuda_flow_fits(dtype, n_out, n_in, device->facts.n_sms, shared_bytes);
}

apr_status apr_cuda_upload_items(apr_cuda_device *device, apr_dtype dtype, void *to, const void *rows, int64_t n_rows, int64_t n_in,
                                 void *scratch, uint64_t scratch_bytes, apr_error *err)
{
    const uint64_t n_bytes = (uint64_t)n_rows * (uint64_t)(n_in / apr_dtypes[dtype].elems_per_block * apr_dtypes[dtype].bytes_per_block);

    if (n_bytes > scratch_bytes)
        return apr_fail(err, APR_E_USAGE, "%llu bytes of rows do not fit the %llu that they are put in order in",
                        (unsigned long long)n_bytes, (unsigned long long)scratch_bytes);
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "putting weights in the order in which they are streamed");
    device->halved.x = NULL;
    cudaError_t error = cudaMemcpyAsync(scratch, rows, n_bytes, cudaMemcpyHostToDevice, device->stream);
    if (error == cudaSuccess) error = apr_cuda_to_items(dtype, (const uint8_t *)scratch, n_rows, n_in, (uint8_t *)to, device->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(device->stream);
    return apr_cuda_outcome(device, error, err);
}

/* What a step is, for sentences, without a word being put together before something failed. */
static const char *words_of(const apr_flow_args *args)
{
    static const char *const words[] = {"products that stream", "products that stream, and a sum",
                                        "products that stream, and their gated unit"};
    return words[args->ending];
}

apr_status apr_cuda_run_flow(apr_cuda_device *device, const apr_flow_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, words_of(args));
    device->halved.x = NULL;
    const bool follows = device->facts.major >= DEPENDENT_LAUNCH;
    return apr_cuda_outcome(device, apr_cuda_flow(args, device->facts.n_sms, follows, device->stream), err);
}

apr_status apr_cuda_run_flow_inputs(apr_cuda_device *device, const apr_flow_inputs *args, apr_error *err)
{
    APR_TRY(apr_cuda_enter(device, err));
    apr_cuda_begin_words(device, "inputs of products that stream");
    device->halved.x = NULL;
    return apr_cuda_outcome(device, apr_cuda_flow_prepare(args, device->facts.major >= DEPENDENT_LAUNCH, device->stream), err);
}
