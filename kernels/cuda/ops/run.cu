/* run.cu - the operations of a program on a device: each kind's launcher, and its description for when it fails. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/ops/ops.cuh"

#include <stdio.h>

/* The table of what is here; a device's operations are started by run(), which needs the device. */
static void not_without_a_device(const apr_op_args *args) { (void)args; }

static apr_backend make_backend(void)
{
    static const apr_op_kind here[] = {APR_OP_EMBED,    APR_OP_ANGLES, APR_OP_RMSNORM, APR_OP_LINEAR, APR_OP_ROPE,
                                       APR_OP_KV_STORE, APR_OP_ATTEND, APR_OP_GLU,     APR_OP_ADD};
    apr_backend backend = {"cuda", {NULL}, 0};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) backend.ops[here[i]] = not_without_a_device;
    return backend;
}

extern const apr_backend apr_cuda_backend = make_backend();

static const char *const operation_names[APR_OP_COUNT] = {
#define X(ID, id, name) name,
    APR_OP_LIST(X)
#undef X
};

bool apr_cuda_takes(apr_dtype dtype) { return apr_cuda_has_kernel(dtype); }

static void describe_tensor(char *text, size_t n, const char *operation, const apr_tensor *tensor, int64_t n_tokens)
{
    char dims[96];
    snprintf(dims, sizeof dims, "[%lld, %lld]", (long long)tensor->dims[0], (long long)tensor->dims[tensor->rank - 1]);
    snprintf(text, n, "%s '%s' (%s %s, %lld tokens)", operation, tensor->name != NULL ? tensor->name : "?", apr_dtypes[tensor->dtype].name,
             dims, (long long)n_tokens);
}

static void describe_attend(char *text, size_t n, const apr_attend_args *a)
{
    snprintf(text, n, "attend (%lld tokens at position %lld, %lld heads on %lld of %lld, cache %s)", (long long)a->n_tokens,
             (long long)a->position, (long long)a->n_heads, (long long)a->n_kv_heads, (long long)a->head_dim,
             apr_dtypes[a->keys.dtype].name);
}

/* What runs now, in words: types, dimensions, and the weight's name, which says the layer. */
static void describe(char *text, size_t n, apr_op_kind kind, const apr_op_args *args)
{
    switch (kind) {
    case APR_OP_EMBED: describe_tensor(text, n, "embed", args->embed.table, args->embed.n_tokens); return;
    case APR_OP_LINEAR: describe_tensor(text, n, "linear", args->linear.weight, args->linear.n_tokens); return;
    case APR_OP_ATTEND: describe_attend(text, n, &args->attend); return;
    case APR_OP_KV_STORE:
        snprintf(text, n, "kv store (%lld tokens at position %lld, %lld heads of %lld, cache %s)", (long long)args->kv_store.n_tokens,
                 (long long)args->kv_store.position, (long long)args->kv_store.n_kv_heads, (long long)args->kv_store.head_dim,
                 apr_dtypes[args->kv_store.keys.dtype].name);
        return;
    default: /* the rest begin with the number of tokens, and work on float32 alone */
        snprintf(text, n, "%s (f32, %lld tokens)", operation_names[kind], (long long)args->add.n_tokens);
    }
}

static cudaError_t launch(const apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args)
{
    switch (kind) {
    case APR_OP_EMBED: return apr_cuda_embed(&args->embed, device->stream);
    case APR_OP_ANGLES: return apr_cuda_angles(&args->angles, device->stream);
    case APR_OP_RMSNORM: return apr_cuda_rmsnorm(&args->rmsnorm, device->stream);
    case APR_OP_ROPE: return apr_cuda_rope(&args->rope, device->stream);
    case APR_OP_KV_STORE: return apr_cuda_kv_store(&args->kv_store, device->stream);
    case APR_OP_ATTEND: return apr_cuda_attend(&args->attend, device->stream);
    case APR_OP_GLU: return apr_cuda_glu(&args->glu, device->stream);
    case APR_OP_ADD: return apr_cuda_add(&args->add, device->stream);
    default: return cudaErrorNotSupported;
    }
}

apr_status apr_cuda_run(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_alive(device, err));
    describe(device->operation, sizeof device->operation, kind, args);
    if (kind == APR_OP_LINEAR) APR_TRY(apr_cuda_linear(device, &args->linear, err));
    else APR_TRY(apr_cuda_result(device, launch(device, kind, args), device->operation, err));
    if (!device->options.check_each) return APR_OK;
    return apr_cuda_result(device, cudaStreamSynchronize(device->stream), device->operation, err);
}
