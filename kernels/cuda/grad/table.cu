/* table.cu - the operations that can be trained on a device. Those whose forward pass does not depend on a window's positions use the
 * kernels of the other forward passes. */
#include "kernels/cuda/common/ops.cuh"
#include "kernels/cuda/grad/grad.cuh"

/* ---- forward passes of kernels/cuda/ops: their arguments with the call's pointers ---- */

static void bind(apr_norm_args *a, const apr_grad_call *c)
{
    a->x = grad_in(c, 0), a->weight = grad_weight(c, 0), a->bias = grad_weight(c, 1);
}
static void bind(apr_rope_args *a, const apr_grad_call *c) { a->x = grad_in(c, 0), a->angles = grad_in(c, 1); }
static void bind(apr_slice_args *a, const apr_grad_call *c) { a->x = grad_in(c, 0); }
static void bind(apr_join_args *a, const apr_grad_call *c) { a->a = grad_in(c, 0), a->b = grad_in(c, 1); }
static void bind(apr_glu_args *a, const apr_grad_call *c) { a->gate = grad_in(c, 0), a->up = grad_in(c, 1); }
static void bind(apr_gate_args *a, const apr_grad_call *c) { a->x = grad_in(c, 0), a->gate = grad_in(c, 1); }
static void bind(apr_softcap_args *a, const apr_grad_call *c) { a->x = grad_in(c, 0); }
static void bind(apr_add_args *a, const apr_grad_call *c) { a->a = grad_in(c, 0), a->b = grad_in(c, 1); }
static void bind(apr_mul_args *a, const apr_grad_call *c)
{
    a->x = grad_in(c, 0);
    a->y = a->y_is_vector ? grad_weight(c, 0) : grad_in(c, 1);
}

template <auto MEMBER, auto START> static apr_status forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    auto args = c->args->*MEMBER;
    args.n_tokens = c->n_rows;
    args.out = (float *)c->out;
    bind(&args, c);
    return apr_cuda_outcome(device, START(&args, device->stream), err);
}
#define FORWARD(id, start) forward<&apr_op_args::id, start>

/* Attention reads the keys and values themselves. */
static apr_status nothing(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    (void)device, (void)c, (void)err;
    return APR_OK;
}

/* ---- the table ---- */

struct grad_operation {
    apr_op_kind kind;
    grad_fn forward, backward; /* backward NULL: nothing that it reads has a gradient */
    size_t (*work)(const apr_grad_call *call);
};

static const grad_operation operations[] = {
    {APR_OP_EMBED, grad_embed_forward, grad_embed_backward, NULL},
    {APR_OP_POSITIONS, grad_positions_forward, grad_positions_backward, NULL},
    {APR_OP_ANGLES, grad_angles_forward, NULL, NULL},
    {APR_OP_NORM, FORWARD(norm, apr_cuda_norm), grad_norm_backward, grad_norm_work},
    {APR_OP_LINEAR, grad_linear_forward, grad_linear_backward, grad_linear_work},
    {APR_OP_ROPE, FORWARD(rope, apr_cuda_rope), grad_rope_backward, NULL},
    {APR_OP_SLICE, FORWARD(slice, apr_cuda_slice), grad_slice_backward, NULL},
    {APR_OP_JOIN, FORWARD(join, apr_cuda_join), grad_join_backward, NULL},
    {APR_OP_KV_STORE, nothing, NULL, NULL},
    {APR_OP_ATTEND, grad_attend_forward, grad_attend_backward, grad_attend_work},
    {APR_OP_GLU, FORWARD(glu, apr_cuda_glu_floats), grad_glu_backward, NULL},
    {APR_OP_GATE, FORWARD(gate, apr_cuda_gate), grad_gate_backward, NULL},
    {APR_OP_SCALE, grad_scale_forward, grad_scale_backward, NULL},
    {APR_OP_MUL, FORWARD(mul, apr_cuda_mul), grad_mul_backward, grad_mul_work},
    {APR_OP_SOFTCAP, FORWARD(softcap, apr_cuda_softcap), grad_softcap_backward, NULL},
    {APR_OP_ADD, FORWARD(add, apr_cuda_add), grad_add_backward, NULL},
};

static const grad_operation *find(apr_op_kind kind)
{
    for (const grad_operation &o : operations)
        if (o.kind == kind) return &o;
    return NULL;
}

static bool has(apr_op_kind kind) { return find(kind) != NULL; }

static uint64_t work(apr_op_kind kind, const apr_grad_call *call)
{
    const grad_operation *const o = find(kind);
    return o != NULL && o->work != NULL ? o->work(call) : 0;
}

static apr_status begin(apr_cuda_device *device, apr_op_kind kind, const apr_grad_call *call, const char *pass, apr_error *err)
{
    if (find(kind) == NULL) return apr_fail(err, APR_E_UNSUPPORTED, "'%s' has no backward pass on a GPU", apr_op_name(kind));
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin(device, "%s of '%s', %lld rows", pass, apr_op_name(kind), (long long)call->n_rows);
    return APR_OK;
}

static apr_status run_forward(apr_cuda_device *device, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    APR_TRY(begin(device, kind, call, "forward pass", err));
    return call->n_rows > 0 ? find(kind)->forward(device, call, err) : APR_OK;
}

static apr_status run_backward(apr_cuda_device *device, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    APR_TRY(begin(device, kind, call, "backward pass", err));
    return call->n_rows > 0 && find(kind)->backward != NULL ? find(kind)->backward(device, call, err) : APR_OK;
}

extern const apr_cuda_grad apr_cuda_grad_table = {has,         work,      run_forward, run_backward, grad_divergence, grad_first_not_finite,
                                                  grad_stored, grad_adamw};
