/* ref_elementwise.c - norms, elementwise operations, slices and concatenations: the definition of each. */
#include "kernels/ref/ref_ops.h"

#include <string.h>

/* The factor of a chunk's numbers after `mean` is subtracted. */
static float norm_scale(const apr_norm_args *a, const float *x, float mean)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < a->chunk; i++) sum += (x[i] - mean) * (x[i] - mean);
    return 1.0f / sqrtf((a->kind == APR_NORM_L2 ? sum : sum / (float)a->chunk) + a->eps);
}

static float mean_of(const float *x, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (float)n;
}

void apr_ref_norm(const apr_op_args *args)
{
    const apr_norm_args *const a = &args->norm;
    for (int64_t begin = 0; begin < a->n_tokens * a->width; begin += a->chunk) {
        const float *const x = a->x + begin;
        const float mean = a->kind == APR_NORM_LAYER ? mean_of(x, a->chunk) : 0.0f, scale = norm_scale(a, x, mean);
        const int64_t of_weight = begin % a->n_weight;
        for (int64_t i = 0; i < a->chunk; i++) {
            const float normed = (x[i] - mean) * scale;
            const float weighed = a->weight != NULL ? normed * (a->weight[of_weight + i] + a->offset) : normed;
            a->out[begin + i] = a->bias != NULL ? weighed + a->bias[of_weight + i] : weighed;
        }
    }
}

void apr_ref_slice(const apr_op_args *args)
{
    const apr_slice_args *const a = &args->slice;
    for (int64_t i = 0; i < a->n_tokens * a->n_heads; i++)
        memcpy(a->out + i * a->n, a->x + i * a->head_dim + a->start, (size_t)a->n * sizeof *a->out);
}

void apr_ref_join(const apr_op_args *args)
{
    const apr_join_args *const a = &args->join;
    for (int64_t i = 0; i < a->n_tokens * a->n_heads; i++) {
        float *const out = a->out + i * (a->n_a + a->n_b);
        memcpy(out, a->a + i * a->n_a, (size_t)a->n_a * sizeof *out);
        memcpy(out + a->n_a, a->b + i * a->n_b, (size_t)a->n_b * sizeof *out);
    }
}

void apr_ref_scale(const apr_op_args *args)
{
    const apr_scale_args *const a = &args->scale;
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const float periods = a->warmth != 0.0f ? floorf(((float)(a->position + t) + a->shift) / a->period) : 0.0f;
        const float factor = a->factor * (1.0f + a->warmth * log1pf(periods));
        for (int64_t i = t * a->width; i < (t + 1) * a->width; i++) a->out[i] = a->x[i] * factor;
    }
}

void apr_ref_mul(const apr_op_args *args)
{
    const apr_mul_args *const a = &args->mul;
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const float *const y = a->y_is_vector ? a->y : a->y + t * a->y_width;
        for (int64_t i = 0; i < a->width; i++) a->out[t * a->width + i] = a->x[t * a->width + i] * y[a->y_width == 1 ? 0 : i];
    }
}

void apr_ref_softcap(const apr_op_args *args)
{
    const apr_softcap_args *const a = &args->softcap;
    for (int64_t i = 0; i < a->n_tokens * a->width; i++) a->out[i] = a->cap * tanhf(a->x[i] / a->cap);
}

void apr_ref_gate(const apr_op_args *args)
{
    const apr_gate_args *const a = &args->gate;
    for (int64_t i = 0; i < a->n_tokens * a->n_heads; i++) {
        const float gate = apr_activate(a->activation, a->gate[i]);
        for (int64_t d = i * a->head_dim; d < (i + 1) * a->head_dim; d++) a->out[d] = a->x[d] * gate;
    }
}
