/* ref_recurrent.c - operations with a state: convolution over time, delta rule, state-space duality; one step a token. */
#include "kernels/ref/ref_ops.h"

#include <string.h>

void apr_ref_conv(const apr_op_args *args)
{
    const apr_conv_args *const a = &args->conv;
    const int64_t n_before = a->n_taps - 1;

    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t c = 0; c < a->width; c++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < a->n_taps; k++) {
                const int64_t at = t - n_before + k; /* negative: in the state */
                sum += a->weight[c * a->n_taps + k] * (at < 0 ? a->state[(n_before + at) * a->width + c] : a->x[at * a->width + c]);
            }
            a->out[t * a->width + c] = apr_activate(a->activation, a->bias != NULL ? sum + a->bias[c] : sum);
        }
    apr_ref_conv_remember(a);
}

/* Keeps the last n_taps - 1 rows of the state and the new tokens. */
void apr_ref_conv_remember(const apr_conv_args *a)
{
    const int64_t n_before = a->n_taps - 1, n_kept = a->n_tokens < n_before ? n_before - a->n_tokens : 0, n_new = n_before - n_kept;

    memmove(a->state, a->state + (n_before - n_kept) * a->width, (size_t)(n_kept * a->width) * sizeof *a->state);
    memcpy(a->state + n_kept * a->width, a->x + (a->n_tokens - n_new) * a->width, (size_t)(n_new * a->width) * sizeof *a->state);
}

static void l2_norm(const float *x, int64_t n, float eps, float scale, float *out)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    const float factor = 1.0f / sqrtf(sum + eps) * scale;
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * factor;
}

/* One token of one head; `work` has apr_delta_slice floats. */
static void delta_step(const apr_delta_args *a, int64_t token, int64_t head, float *work)
{
    const int64_t dk = a->key_dim, dv = a->value_dim, n_keys = a->n_key_heads * dk;
    const int64_t key_head = a->tiled ? head % a->n_key_heads : head / (a->n_value_heads / a->n_key_heads);
    const float *const qkv = a->qkv + token * (2 * n_keys + a->n_value_heads * dv), *const v = qkv + 2 * n_keys + head * dv;
    const int64_t at = token * a->n_value_heads + head;
    const float decay = expf(-a->rate[head] * apr_softplus(a->a[at] + a->dt_bias[head])), beta = apr_sigmoid(a->b[at]);
    float *const q = work, *const k = q + dk, *const error = k + dk, *const s = a->state + head * dk * dv, *const out = a->out + at * dv;

    l2_norm(qkv + key_head * dk, dk, a->eps, 1.0f / sqrtf((float)dk), q);
    l2_norm(qkv + n_keys + key_head * dk, dk, a->eps, 1.0f, k);
    for (int64_t i = 0; i < dk * dv; i++) s[i] *= decay;
    memcpy(error, v, (size_t)dv * sizeof *v);
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j++) error[j] -= s[i * dv + j] * k[i];
    memset(out, 0, (size_t)dv * sizeof *out);
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j++) {
            s[i * dv + j] += k[i] * beta * error[j];
            out[j] += s[i * dv + j] * q[i];
        }
}

void apr_ref_delta(const apr_op_args *args)
{
    const apr_delta_args *const a = &args->delta;
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t h = 0; h < a->n_value_heads; h++) delta_step(a, t, h, a->work.data);
}

static void ssd_step(const apr_ssd_args *a, int64_t token, int64_t head)
{
    const int64_t n = a->state_dim, n_x = a->n_heads * a->head_dim, group = head / (a->n_heads / a->n_groups);
    const float *const row = a->xbc + token * (n_x + 2 * a->n_groups * n), *const x = row + head * a->head_dim;
    const float *const b = row + n_x + group * n, *const c = b + a->n_groups * n;
    const float dt = apr_softplus(a->dt[token * a->n_heads + head] + a->dt_bias[head]), decay = expf(-a->rate[head] * dt);

    for (int64_t i = 0; i < a->head_dim; i++) {
        float *const s = a->state + (head * a->head_dim + i) * n;
        float sum = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            s[j] = s[j] * decay + dt * x[i] * b[j];
            sum += s[j] * c[j];
        }
        a->out[token * n_x + head * a->head_dim + i] = sum + a->skip[head] * x[i];
    }
}

void apr_ref_ssd(const apr_op_args *args)
{
    const apr_ssd_args *const a = &args->ssd;
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t h = 0; h < a->n_heads; h++) ssd_step(a, t, h);
}
