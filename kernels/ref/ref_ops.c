/* ref/ops.c - the operations of a forward pass in plain loops: what each of them means. */
#include "kernels/ref/ref_ops.h"

#include <math.h>

const char *apr_op_name(apr_op_kind kind)
{
    static const char *const names[] = {
#define X(ID, id, name) name,
        APR_OP_LIST(X)
#undef X
    };
    return names[kind];
}

const char *apr_twist_name(apr_twist twist)
{
    static const char *const names[] = {
#define X(ID, name) name,
        APR_TWIST_LIST(X)
#undef X
    };
    return names[twist];
}

void apr_ref_embed(const apr_op_args *args)
{
    const apr_embed_args *const a = &args->embed;
    for (int64_t t = 0; t < a->n_tokens; t++) apr_decode_rows(a->table, a->ids[t], 1, a->out + t * a->width);
}

void apr_ref_angles(const apr_op_args *args)
{
    const apr_angles_args *const a = &args->angles;
    for (int64_t t = 0; t < a->n_tokens; t++) {
        float *const cosines = a->out + t * 2 * a->n_freqs, *const sines = cosines + a->n_freqs;
        for (int64_t j = 0; j < a->n_freqs; j++) {
            const float angle = (float)(a->position + t) * a->freqs[j];
            cosines[j] = cosf(angle) * a->magnitude;
            sines[j] = sinf(angle) * a->magnitude;
        }
    }
}

void apr_ref_rmsnorm(const apr_op_args *args)
{
    const apr_rmsnorm_args *const a = &args->rmsnorm;
    for (int64_t begin = 0; begin < a->n_tokens * a->width; begin += a->chunk) {
        const float *const x = a->x + begin;
        float sum = 0.0f;
        for (int64_t i = 0; i < a->chunk; i++) sum += x[i] * x[i];
        const float scale = 1.0f / sqrtf(sum / (float)a->chunk + a->eps);
        for (int64_t i = 0; i < a->chunk; i++) a->out[begin + i] = x[i] * scale * a->weight[i];
    }
}

void apr_ref_linear(const apr_op_args *args)
{
    const apr_linear_args *const a = &args->linear;
    float *const row = a->work.data;

    for (int64_t r = 0; r < a->n_out; r++) {
        apr_decode_rows(a->weight, r, 1, row);
        for (int64_t t = 0; t < a->n_tokens; t++) {
            float sum = 0.0f;
            for (int64_t i = 0; i < a->n_in; i++) sum += a->x[t * a->n_in + i] * row[i];
            a->out[t * a->n_out + r] = a->bias != NULL ? sum + a->bias[r] : sum;
        }
    }
}

void apr_ref_rope(const apr_op_args *args)
{
    const apr_rope_args *const a = &args->rope;
    for (int64_t row = 0; row < a->n_tokens * a->n_heads; row++) {
        const float *const x = a->x + row * a->head_dim;
        const float *const cosines = a->angles + row / a->n_heads * 2 * a->n_freqs, *const sines = cosines + a->n_freqs;
        float *const out = a->out + row * a->head_dim;

        for (int64_t j = 0; j < a->n_freqs; j++) {
            const float first = x[j], second = x[j + a->n_freqs];
            out[j] = first * cosines[j] - second * sines[j];
            out[j + a->n_freqs] = second * cosines[j] + first * sines[j];
        }
        for (int64_t i = 2 * a->n_freqs; i < a->head_dim; i++) out[i] = x[i];
    }
}

static uint8_t *cache_row(const apr_cache *cache, int64_t position, int64_t n_heads, int64_t head)
{
    return cache->data + (position % cache->n_cells * n_heads + head) * cache->row_bytes;
}

void apr_ref_kv_store(const apr_op_args *args)
{
    const apr_kv_store_args *const a = &args->kv_store;
    for (int64_t t = 0; t < a->n_tokens; t++)
        for (int64_t h = 0; h < a->n_kv_heads; h++) {
            const int64_t from = (t * a->n_kv_heads + h) * a->head_dim;
            apr_ref_codecs[a->keys.dtype].encode(a->k + from, cache_row(&a->keys, a->position + t, a->n_kv_heads, h), a->head_dim);
            apr_ref_codecs[a->values.dtype].encode(a->v + from, cache_row(&a->values, a->position + t, a->n_kv_heads, h), a->head_dim);
        }
}

/* Score of one query against the key of one position; `key` is scratch for a decoded row. */
static float score_of(const apr_attend_args *a, const float *q, int64_t position, int64_t kv_head, float *key)
{
    float sum = 0.0f;
    apr_ref_codecs[a->keys.dtype].decode(cache_row(&a->keys, position, a->n_kv_heads, kv_head), key, a->head_dim);
    for (int64_t i = 0; i < a->head_dim; i++) sum += q[i] * key[i];
    return sum * a->scale;
}

void apr_ref_attend(const apr_op_args *args)
{
    const apr_attend_args *const a = &args->attend;
    float *const row = a->work.data;

    for (int64_t i = 0; i < a->n_tokens * a->n_heads; i++) {
        const int64_t last = a->position + i / a->n_heads, kv_head = i % a->n_heads / (a->n_heads / a->n_kv_heads);
        const int64_t first = a->window > 0 && last >= a->window ? last - a->window + 1 : 0;
        const float *const q = a->q + i * a->head_dim;
        float *const out = a->out + i * a->head_dim;
        float max = -INFINITY, sum = 0.0f;

        for (int64_t p = first; p <= last; p++) max = fmaxf(max, score_of(a, q, p, kv_head, row));
        for (int64_t d = 0; d < a->head_dim; d++) out[d] = 0.0f;
        for (int64_t p = first; p <= last; p++) {
            const float weight = expf(score_of(a, q, p, kv_head, row) - max);
            sum += weight;
            apr_ref_codecs[a->values.dtype].decode(cache_row(&a->values, p, a->n_kv_heads, kv_head), row, a->head_dim);
            for (int64_t d = 0; d < a->head_dim; d++) out[d] += weight * row[d];
        }
        for (int64_t d = 0; d < a->head_dim; d++) out[d] /= sum;
    }
}

void apr_ref_glu(const apr_op_args *args)
{
    const apr_glu_args *const a = &args->glu;
    for (int64_t i = 0; i < a->n_tokens * a->width; i++) a->out[i] = a->gate[i] / (1.0f + expf(-a->gate[i])) * a->up[i];
}

void apr_ref_add(const apr_op_args *args)
{
    const apr_add_args *const a = &args->add;
    for (int64_t i = 0; i < a->n_tokens * a->width; i++) a->out[i] = a->a[i] + a->b[i];
}

const apr_backend apr_ref_backend = {
    .name = "ref",
    .ops = {[APR_OP_EMBED] = apr_ref_embed,
            [APR_OP_ANGLES] = apr_ref_angles,
            [APR_OP_RMSNORM] = apr_ref_rmsnorm,
            [APR_OP_LINEAR] = apr_ref_linear,
            [APR_OP_ROPE] = apr_ref_rope,
            [APR_OP_KV_STORE] = apr_ref_kv_store,
            [APR_OP_ATTEND] = apr_ref_attend,
            [APR_OP_GLU] = apr_ref_glu,
            [APR_OP_ADD] = apr_ref_add},
};
