/* run.cu - the operations of a program on a device: the table of what starts each kind. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/ops/ops.cuh"

typedef apr_status (*launch_fn)(apr_cuda_device *device, const apr_op_args *args, apr_error *err);

/* START is a launcher of ops.cuh, MEMBER what it takes of the arguments. */
template <auto MEMBER, auto START> static apr_status launch(apr_cuda_device *device, const apr_op_args *args, apr_error *err)
{
    return apr_cuda_outcome(device, START(&(args->*MEMBER), device->stream), err);
}

static apr_status linear(apr_cuda_device *device, const apr_op_args *args, apr_error *err)
{
    return apr_cuda_linear(device, &args->linear, err);
}

static const struct {
    apr_op_kind kind;
    launch_fn launch;
} operations[] = {
    {APR_OP_EMBED, launch<&apr_op_args::embed, apr_cuda_embed>},
    {APR_OP_ANGLES, launch<&apr_op_args::angles, apr_cuda_angles>},
    {APR_OP_RMSNORM, launch<&apr_op_args::rmsnorm, apr_cuda_rmsnorm>},
    {APR_OP_LINEAR, linear},
    {APR_OP_ROPE, launch<&apr_op_args::rope, apr_cuda_rope>},
    {APR_OP_KV_STORE, launch<&apr_op_args::kv_store, apr_cuda_kv_store>},
    {APR_OP_ATTEND, launch<&apr_op_args::attend, apr_cuda_attend>},
    {APR_OP_GLU, launch<&apr_op_args::glu, apr_cuda_glu>},
    {APR_OP_ADD, launch<&apr_op_args::add, apr_cuda_add>},
};

/* The same as a backend, which says what is here; a device's operations are started by run(), which needs the device. */
static void not_without_a_device(const apr_op_args *args) { (void)args; }

static apr_backend make_backend(void)
{
    apr_backend backend = {"cuda", {NULL}, 0};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) backend.ops[operations[i].kind] = not_without_a_device;
    return backend;
}

extern const apr_backend apr_cuda_backend = make_backend();

bool apr_cuda_takes(apr_dtype dtype) { return apr_cuda_has_kernel(dtype); }

static apr_status start(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (operations[i].kind == kind) return operations[i].launch(device, args, err);
    return apr_cuda_outcome(device, cudaErrorNotSupported, err);
}

apr_status apr_cuda_run(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_alive(device, err));
    device->started.is_operation = true;
    device->started.kind = kind;
    device->started.args = *args;
    APR_TRY(start(device, kind, args, err));
    if (!device->options.check_each) return APR_OK;
    return apr_cuda_outcome(device, cudaStreamSynchronize(device->stream), err);
}
