/* host_ops.c - the host backend: OpenMP over rows, tokens or heads. */
#include "kernels/host/host_ops.h"
#include "kernels/ref/ref_ops.h"

static void glu(const apr_op_args *args)
{
    const apr_glu_args *const a = &args->glu;
    const int64_t n = a->n_tokens * a->width;
#pragma omp parallel for schedule(static) num_threads(apr_threads(a->n_threads, n, (double)n *APR_OPS_EXP))
    for (int64_t i = 0; i < n; i++)
        a->out[i] = a->up != NULL ? apr_glu_of(&a->shape, a->gate[i], a->up[i]) : apr_activate(a->shape.activation, a->gate[i]);
}

/* Operations without a faster implementation are ref's. */
#define HOST_OPS(linear, experts)                                                                                                       \
    {                                                                                                                                   \
        [APR_OP_EMBED] = apr_ref_embed, [APR_OP_ANGLES] = apr_ref_angles, [APR_OP_NORM] = apr_host_norm, [APR_OP_LINEAR] = linear,      \
        [APR_OP_ROPE] = apr_host_rope, [APR_OP_SLICE] = apr_ref_slice, [APR_OP_JOIN] = apr_ref_join,                                    \
        [APR_OP_KV_STORE] = apr_host_kv_store, [APR_OP_ATTEND] = apr_host_attend, [APR_OP_GLU] = glu, [APR_OP_GATE] = apr_host_gate,    \
        [APR_OP_SCALE] = apr_host_scale, [APR_OP_MUL] = apr_host_mul, [APR_OP_SOFTCAP] = apr_host_softcap, [APR_OP_ADD] = apr_host_add, \
        [APR_OP_ROUTE] = apr_host_route, [APR_OP_EXPERTS] = experts, [APR_OP_CONV] = apr_host_conv, [APR_OP_DELTA] = apr_host_delta,    \
        [APR_OP_SSD] = apr_host_ssd                                                                                                     \
    }

const apr_backend apr_host_backend = {.name = "host", .ops = HOST_OPS(apr_host_linear, apr_host_experts), .linears = apr_host_linears};
const apr_backend apr_host_exact_backend = {
    .name = "host", .ops = HOST_OPS(apr_host_linear_exact, apr_host_experts_exact), .linears = apr_host_linears_exact};
