/* run.cu - the operations of a program on a device: the table of launchers. */
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/moe/pairs.cuh"

typedef apr_status (*launch_fn)(apr_cuda_device *device, const apr_op_args *args, apr_error *err);

/* A launcher starts kernels on the stream; products with a matrix need the device. */
template <typename ARGS>
static apr_status call(cudaError_t (*start)(const ARGS *, cudaStream_t), apr_cuda_device *device, const ARGS *args, apr_error *err)
{
    return apr_cuda_outcome(device, start(args, device->stream), err);
}

template <typename ARGS>
static apr_status call(apr_status (*start)(apr_cuda_device *, const ARGS *, apr_error *), apr_cuda_device *device, const ARGS *args,
                       apr_error *err)
{
    return start(device, args, err);
}

static apr_status call(cudaError_t (*start)(const apr_attend_args *, cudaStream_t), apr_cuda_device *device, const apr_attend_args *args,
                       apr_error *err)
{
    return apr_cuda_outcome(device, (device->exact ? apr_cuda_attend_exact : start)(args, device->stream), err);
}

/* Batch invariant: 64 tokens at a time with the small GEMM, else one at a time, so that sums are split as for a single token. */
static cudaError_t experts_batch_invariant(apr_cuda_device *device, const apr_experts_args *args)
{
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0, n = APR_SMALL_GEMM_MAX_TOKENS; first < args->n_tokens && error == cudaSuccess;) {
        apr_experts_args some = *args;
        some.n_tokens = args->n_tokens - first < n ? args->n_tokens - first : n;
        some.x = args->x + first * args->n_in;
        some.routes = args->routes + first * apr_route_row(args->n_used);
        some.out = args->out + first * args->n_out;
        error = cudaErrorNotSupported;
        if (n > 1 && !device->exact && !device->tiles)
            error = apr_cuda_experts_small_gemm(&some, device->facts.n_sms, apr_cuda_code_major(), device->stream);
        if (error == cudaErrorNotSupported && n > 1) {
            n = 1;
            error = cudaSuccess;
            continue;
        }
        if (error == cudaErrorNotSupported) error = apr_cuda_experts(&some, device->stream);
        first += n;
    }
    return error;
}

/* The three operations one after another. */
static cudaError_t rows_experts_apart(apr_cuda_device *device, const apr_rows_experts *args)
{
    const apr_experts_args *const a = &args->experts;
    const apr_add_args add = {a->n_tokens, a->n_out, args->residual, a->out, args->sum, 0};
    cudaError_t error = experts_batch_invariant(device, a);
    if (error == cudaSuccess) error = apr_cuda_add(&add, device->stream);
    return error == cudaSuccess ? apr_cuda_small_gemm_rows_inputs(&args->inputs, device->stream) : error;
}

apr_status apr_cuda_run_rows_experts(apr_cuda_device *device, const apr_rows_experts *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "experts of a batch, and their sum");
    cudaError_t error = apr_cuda_experts_small_gemm_rows(args, device->facts.n_sms, apr_cuda_code_major(), device->stream);
    if (error == cudaErrorNotSupported) error = rows_experts_apart(device, args);
    if (error == cudaSuccess && device->options.check_each) error = cudaStreamSynchronize(device->stream);
    return apr_cuda_outcome(device, error, err);
}

/* Several tokens are sorted by expert if there is a kernel for that. Otherwise, and if inputs may not be rounded, each pair is a
 * product. */
static apr_status call(cudaError_t (*start)(const apr_experts_args *, cudaStream_t), apr_cuda_device *device, const apr_experts_args *args,
                       apr_error *err)
{
    cudaError_t error = cudaErrorNotSupported;
    if (device->batch_invariant) return apr_cuda_outcome(device, experts_batch_invariant(device, args), err);
    if (!device->exact && !device->tiles && args->n_tokens > 1)
        error = apr_cuda_experts_small_gemm(args, device->facts.n_sms, apr_cuda_code_major(), device->stream);
    return apr_cuda_outcome(device, error == cudaErrorNotSupported ? start(args, device->stream) : error, err);
}

/* Calls START with its MEMBER of the arguments. */
template <auto MEMBER, auto START> static apr_status launch(apr_cuda_device *device, const apr_op_args *args, apr_error *err)
{
    return call(START, device, &(args->*MEMBER), err);
}

static const launch_fn operations[APR_OP_COUNT] = {
#define X(ID, id, name) launch<&apr_op_args::id, apr_cuda_##id>,
    APR_OP_LIST(X)
#undef X
};

/* A backend that only lists the operations; run() starts them, since they need the device. */
static void not_without_a_device(const apr_op_args *args) { (void)args; }

static apr_backend make_backend(void)
{
    apr_backend backend = {"cuda", {NULL}, NULL};
    for (size_t kind = 0; kind < APR_OP_COUNT; kind++) backend.ops[kind] = not_without_a_device;
    return backend;
}

extern const apr_backend apr_cuda_backend = make_backend();

bool apr_cuda_takes(apr_dtype dtype) { return apr_cuda_has_kernel(dtype); }

apr_status apr_cuda_run(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    device->started.is_operation = true;
    device->started.kind = kind;
    device->started.args = *args;
    APR_TRY(operations[kind](device, args, err));
    if (!device->options.check_each) return APR_OK;
    return apr_cuda_outcome(device, cudaStreamSynchronize(device->stream), err);
}
