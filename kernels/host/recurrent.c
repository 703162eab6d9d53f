/* recurrent.c - the delta rule and state-space duality on the host: one head a thread, prompts in chunks.
 *
 * Within a chunk only a small triangular solve runs token by token. With G the running sum of the logarithms of decay and D_ij = exp(G_i
 * - G_j) for j <= i (differences are never positive, so nothing overflows), the delta rule is
 *     error_i = beta_i (v_i - exp(G_i) S^T k_i - sum over j < i: D_ij (k_i . k_j) error_j)
 *     out_i   = exp(G_i) S^T q_i + sum over j <= i: D_ij (q_i . k_j) error_j
 *     S       = exp(G_last) S + sum over j: exp(G_last - G_j) k_j error_j^T
 * and state-space duality
 *     out_i   = exp(G_i) S C_i + sum over j <= i: D_ij (C_i . B_j) dt_j x_j + skip x_i
 *     S       = exp(G_last) S + sum over j: exp(G_last - G_j) dt_j x_j B_j^T
 * Up to rounding both equal the steps of kernels/ref. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"
#include "kernels/ref/ref_ops.h"

#include <string.h>

LANES_INLINE float dot(const lanes_shape shape, const float *a, const float *b, int64_t n)
{
    float sums[4][6];
    lanes_dots(shape, 1, 1, a, n, b, n, n, sums);
    return sums[0][0];
}

LANES_INLINE void multiply_all(float *y, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] *= factor;
}

/* --- delta rule --- */

/* One chunk of one head, and a thread's scratch. */
typedef struct delta_chunk {
    const apr_delta_args *a;
    int64_t head, token, n;
    float *q, *k;          /* [n, key_dim], normed */
    float *errors;         /* [n, value_dim] */
    float *decays, *betas; /* [n]: running sums of logarithms of decay; betas */
} delta_chunk;

LANES_INLINE void l2_norm(const lanes_shape shape, const float *x, int64_t n, float eps, float scale, float *out)
{
    const float factor = 1.0f / sqrtf(dot(shape, x, x, n) + eps) * scale;
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * factor;
}

LANES_INLINE void load_chunk(const lanes_shape shape, const delta_chunk *c)
{
    const apr_delta_args *const a = c->a;
    const int64_t dk = a->key_dim, dv = a->value_dim, n_keys = a->n_key_heads * dk;
    const int64_t key_head = a->tiled ? c->head % a->n_key_heads : c->head / (a->n_value_heads / a->n_key_heads);
    float decay = 0.0f;

    for (int64_t i = 0; i < c->n; i++) {
        const float *const row = a->qkv + (c->token + i) * (2 * n_keys + a->n_value_heads * dv);
        const int64_t at = (c->token + i) * a->n_value_heads + c->head;
        l2_norm(shape, row + key_head * dk, dk, a->eps, 1.0f / sqrtf((float)dk), c->q + i * dk);
        l2_norm(shape, row + n_keys + key_head * dk, dk, a->eps, 1.0f, c->k + i * dk);
        memcpy(c->errors + i * dv, row + 2 * n_keys + c->head * dv, (size_t)dv * sizeof(float));
        if (!a->by_channel) decay += apr_delta_log_decay(a, a->rate[c->head], a->a[at] + a->dt_bias[c->head]);
        c->decays[i] = decay;
        c->betas[i] = apr_sigmoid(a->b[at]);
    }
}

LANES_INLINE void delta_chunk_body(const lanes_shape shape, const delta_chunk *c)
{
    const apr_delta_args *const a = c->a;
    const int64_t dk = a->key_dim, dv = a->value_dim;
    float *const s = a->state + c->head * dk * dv;

    load_chunk(shape, c);
    for (int64_t i = 0; i < c->n; i++) {
        float *const error = c->errors + i * dv, *const out = a->out + ((c->token + i) * a->n_value_heads + c->head) * dv;
        const float *const q = c->q + i * dk, *const k = c->k + i * dk;
        const float decay = expf(c->decays[i]);
        memset(out, 0, (size_t)dv * sizeof *out);
        for (int64_t d = 0; d < dk; d++) {
            lanes_add_scaled(shape, error, -decay * k[d], s + d * dv, dv);
            lanes_add_scaled(shape, out, decay * q[d], s + d * dv, dv);
        }
        for (int64_t j = 0; j < i; j++) {
            const float between = expf(c->decays[i] - c->decays[j]);
            lanes_add_scaled(shape, error, -between * dot(shape, k, c->k + j * dk, dk), c->errors + j * dv, dv);
            lanes_add_scaled(shape, out, between * dot(shape, q, c->k + j * dk, dk), c->errors + j * dv, dv);
        }
        multiply_all(error, c->betas[i], dv);
        lanes_add_scaled(shape, out, dot(shape, q, k, dk), error, dv);
    }
    const float last = c->decays[c->n - 1];
    multiply_all(s, expf(last), dk * dv);
    for (int64_t j = 0; j < c->n; j++)
        for (int64_t d = 0; d < dk; d++)
            lanes_add_scaled(shape, s + d * dv, expf(last - c->decays[j]) * c->k[j * dk + d], c->errors + j * dv, dv);
}

/* The tokens one by one, where each row of the state has its own decay: the factors between two tokens would differ by row. */
LANES_INLINE void delta_tokens_body(const lanes_shape shape, const delta_chunk *c)
{
    const apr_delta_args *const a = c->a;
    const int64_t dk = a->key_dim, dv = a->value_dim;
    float *const s = a->state + c->head * dk * dv;

    load_chunk(shape, c);
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t at = (c->token + i) * a->n_value_heads + c->head;
        float *const error = c->errors + i * dv, *const out = a->out + at * dv;
        const float *const q = c->q + i * dk, *const k = c->k + i * dk, *const gates = a->a + at * dk,
                           *const bias = a->dt_bias + c->head * dk;
        for (int64_t d = 0; d < dk; d++) {
            multiply_all(s + d * dv, expf(apr_delta_log_decay(a, a->rate[c->head], gates[d] + bias[d])), dv);
            lanes_add_scaled(shape, error, -k[d], s + d * dv, dv);
        }
        multiply_all(error, c->betas[i], dv);
        memset(out, 0, (size_t)dv * sizeof *out);
        for (int64_t d = 0; d < dk; d++) {
            lanes_add_scaled(shape, s + d * dv, k[d], error, dv);
            lanes_add_scaled(shape, out, q[d], s + d * dv, dv);
        }
    }
}

LANES_CLONES(run_delta_chunk, delta_chunk_body, (const delta_chunk *c), c)
LANES_CLONES(run_delta_tokens, delta_tokens_body, (const delta_chunk *c), c)

void apr_host_delta(const apr_op_args *args)
{
    const apr_delta_args *const a = &args->delta;
    /* a token reads the state twice and writes it once; the products of tokens of a chunk cost about the same again */
    const double steps = 4.0 * (double)(a->n_value_heads * a->key_dim) * (double)a->value_dim * (double)a->n_tokens;
#pragma omp parallel for schedule(static) num_threads(apr_threads(a->work.n_threads, a->n_value_heads, steps))
    for (int64_t h = 0; h < a->n_value_heads; h++) {
        float *const work = a->work.data + apr_host_slice(&a->work);
        for (int64_t t = 0; t < a->n_tokens; t += APR_RECURRENT_CHUNK) {
            const int64_t n = a->n_tokens - t < APR_RECURRENT_CHUNK ? a->n_tokens - t : (int64_t)APR_RECURRENT_CHUNK;
            delta_chunk c = {.a = a, .head = h, .token = t, .n = n, .q = work};
            c.k = c.q + APR_RECURRENT_CHUNK * a->key_dim;
            c.errors = c.k + APR_RECURRENT_CHUNK * a->key_dim;
            c.decays = c.errors + APR_RECURRENT_CHUNK * a->value_dim;
            c.betas = c.decays + APR_RECURRENT_CHUNK;
            (a->by_channel ? run_delta_tokens : run_delta_chunk)(&c);
        }
    }
}

/* --- state-space duality --- */

typedef struct ssd_chunk {
    const apr_ssd_args *a;
    int64_t head, token, n;
    float *decays, *steps; /* [n]: running sums of logarithms; dt */
    float *between;        /* [n]: factors of one token and those before it */
} ssd_chunk;

LANES_INLINE void ssd_chunk_body(const lanes_shape shape, const ssd_chunk *c)
{
    const apr_ssd_args *const a = c->a;
    const int64_t n_state = a->state_dim, n_x = a->n_heads * a->head_dim, width = n_x + 2 * a->n_groups * n_state;
    const int64_t group = c->head / (a->n_heads / a->n_groups);
    const float *const rows = a->xbc + c->token * width, *const bs = rows + n_x + group * n_state, *const cs = bs + a->n_groups * n_state;
    float decay = 0.0f;

    for (int64_t i = 0; i < c->n; i++) {
        c->steps[i] = apr_softplus(a->dt[(c->token + i) * a->n_heads + c->head] + a->dt_bias[c->head]);
        c->decays[i] = decay -= a->rate[c->head] * c->steps[i];
    }
    for (int64_t i = 0; i < c->n; i++) {
        for (int64_t j = 0; j <= i; j++)
            c->between[j] = expf(c->decays[i] - c->decays[j]) * dot(shape, cs + i * width, bs + j * width, n_state) * c->steps[j];
        for (int64_t d = 0; d < a->head_dim; d++) {
            const int64_t at = c->head * a->head_dim + d;
            float sum = expf(c->decays[i]) * dot(shape, a->state + at * n_state, cs + i * width, n_state);
            for (int64_t j = 0; j <= i; j++) sum += c->between[j] * rows[j * width + at];
            a->out[(c->token + i) * n_x + at] = sum + a->skip[c->head] * rows[i * width + at];
        }
    }
    const float last = c->decays[c->n - 1];
    for (int64_t d = 0; d < a->head_dim; d++) {
        const int64_t at = c->head * a->head_dim + d;
        multiply_all(a->state + at * n_state, expf(last), n_state);
        for (int64_t j = 0; j < c->n; j++)
            lanes_add_scaled(shape, a->state + at * n_state, expf(last - c->decays[j]) * c->steps[j] * rows[j * width + at], bs + j * width,
                             n_state);
    }
}

LANES_CLONES(run_ssd_chunk, ssd_chunk_body, (const ssd_chunk *c), c)

void apr_host_ssd(const apr_op_args *args)
{
    const apr_ssd_args *const a = &args->ssd;
    const double n_steps = 4.0 * (double)(a->n_heads * a->head_dim) * (double)a->state_dim * (double)a->n_tokens;
#pragma omp parallel for schedule(static) num_threads(apr_threads(a->n_threads, a->n_heads, n_steps))
    for (int64_t h = 0; h < a->n_heads; h++)
        for (int64_t t = 0; t < a->n_tokens; t += APR_RECURRENT_CHUNK) {
            float decays[APR_RECURRENT_CHUNK], steps[APR_RECURRENT_CHUNK], between[APR_RECURRENT_CHUNK];
            const int64_t n = a->n_tokens - t < APR_RECURRENT_CHUNK ? a->n_tokens - t : (int64_t)APR_RECURRENT_CHUNK;
            const ssd_chunk c = {.a = a, .head = h, .token = t, .n = n, .decays = decays, .steps = steps, .between = between};
            run_ssd_chunk(&c);
        }
}
