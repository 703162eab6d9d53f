/* host/ops.c - the host backend: OpenMP over rows, tokens or heads. */
#include "kernels/host/host_ops.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>

static void rmsnorm(const apr_op_args *args)
{
    const apr_rmsnorm_args *const a = &args->rmsnorm;
    for (int64_t begin = 0; begin < a->n_tokens * a->width; begin += a->chunk) {
        const float *const x = a->x + begin;
        float lane[16] = {0}, sum = 0.0f; /* sixteen sums: what a compiler needs to use SIMD */
        int64_t i = 0;

        for (; i + 16 <= a->chunk; i += 16)
            for (int l = 0; l < 16; l++) lane[l] += x[i + l] * x[i + l];
        for (; i < a->chunk; i++) sum += x[i] * x[i];
        for (int l = 0; l < 16; l++) sum += lane[l];
        const float scale = 1.0f / sqrtf(sum / (float)a->chunk + a->eps);
        for (i = 0; i < a->chunk; i++) a->out[begin + i] = x[i] * scale * a->weight[i];
    }
}

static void glu(const apr_op_args *args)
{
    const apr_glu_args *const a = &args->glu;
    const int64_t n = a->n_tokens * a->width;
#pragma omp parallel for schedule(static) num_threads(a->n_threads) if (n > 16384)
    for (int64_t i = 0; i < n; i++) a->out[i] = a->gate[i] / (1.0f + expf(-a->gate[i])) * a->up[i];
}

const apr_backend apr_host_backend = {
    .name = "host",
    .ops = {[APR_OP_EMBED] = apr_ref_embed,
            [APR_OP_ANGLES] = apr_ref_angles,
            [APR_OP_RMSNORM] = rmsnorm,
            [APR_OP_LINEAR] = apr_host_linear,
            [APR_OP_ROPE] = apr_ref_rope,
            [APR_OP_KV_STORE] = apr_host_kv_store,
            [APR_OP_ATTEND] = apr_host_attend,
            [APR_OP_GLU] = glu,
            [APR_OP_ADD] = apr_ref_add},
};
