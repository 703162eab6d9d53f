/* host/ops.c - the host backend: OpenMP over rows, tokens or heads. */
#include "kernels/host/host_ops.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>

/* Sixteen sums: what a compiler needs to use SIMD. */
static float sum_of_squares(const float *x, float mean, int64_t n)
{
    float lane[16] = {0}, sum = 0.0f;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    for (int l = 0; l < 16; l++) sum += lane[l];
    return sum;
}

static void norm_rms(const apr_norm_args *a)
{
    for (int64_t begin = 0; begin < a->n_tokens * a->width; begin += a->chunk) {
        const float *const x = a->x + begin, *const weight = a->weight + begin % a->n_weight;
        const float scale = 1.0f / sqrtf(sum_of_squares(x, 0.0f, a->chunk) / (float)a->chunk + a->eps);
        for (int64_t i = 0; i < a->chunk; i++) a->out[begin + i] = x[i] * scale * (weight[i] + a->offset);
    }
}

static void norm(const apr_op_args *args)
{
    const apr_norm_args *const a = &args->norm;
    if (a->kind == APR_NORM_RMS && a->weight != NULL && a->bias == NULL) norm_rms(a);
    else apr_ref_norm(args);
}

static void glu(const apr_op_args *args)
{
    const apr_glu_args *const a = &args->glu;
    const int64_t n = a->n_tokens * a->width;
#pragma omp parallel for schedule(static) num_threads(apr_threads(a->n_threads, n, (double)n *APR_STEPS_EXP))
    for (int64_t i = 0; i < n; i++)
        a->out[i] = a->up != NULL ? apr_glu_of(&a->shape, a->gate[i], a->up[i]) : apr_activate(a->shape.activation, a->gate[i]);
}

/* Where there is nothing to gain, ref's. */
#define HOST_OPS(linear, experts)                                                                                                          \
    {                                                                                                                                      \
        [APR_OP_EMBED] = apr_ref_embed, [APR_OP_ANGLES] = apr_ref_angles, [APR_OP_NORM] = norm, [APR_OP_LINEAR] = linear,                  \
        [APR_OP_ROPE] = apr_ref_rope, [APR_OP_SLICE] = apr_ref_slice, [APR_OP_JOIN] = apr_ref_join, [APR_OP_KV_STORE] = apr_host_kv_store, \
        [APR_OP_ATTEND] = apr_host_attend, [APR_OP_GLU] = glu, [APR_OP_GATE] = apr_ref_gate, [APR_OP_SCALE] = apr_ref_scale,               \
        [APR_OP_MUL] = apr_ref_mul, [APR_OP_SOFTCAP] = apr_ref_softcap, [APR_OP_ADD] = apr_ref_add, [APR_OP_ROUTE] = apr_host_route,       \
        [APR_OP_EXPERTS] = experts, [APR_OP_CONV] = apr_host_conv, [APR_OP_DELTA] = apr_host_delta, [APR_OP_SSD] = apr_host_ssd            \
    }

const apr_backend apr_host_backend = {.name = "host", .ops = HOST_OPS(apr_host_linear, apr_host_experts)};
const apr_backend apr_host_exact_backend = {.name = "host", .ops = HOST_OPS(apr_host_linear_exact, apr_host_experts_exact)};
