/* ref_ops.c - the operations of a forward pass in plain loops: the definition of each. */
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

/* Adds the contribution of row i of a head's matrix to the sums of all tokens. */
static void add_head_row(const apr_linear_args *a, int64_t head, int64_t i, const float *row)
{
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const float *const x = a->x + (t * a->heads.n + head) * a->n_in;
        float *const out = a->out + (t * a->heads.n + head) * a->n_out;
        float sum = 0.0f;
        for (int64_t c = 0; c < a->n_out && a->heads.transposed; c++) out[c] += x[i] * row[c];
        if (a->heads.transposed) continue;
        for (int64_t c = 0; c < a->n_in; c++) sum += x[c] * row[c];
        out[i] = sum;
    }
}

static void linear_of_heads(const apr_linear_args *a)
{
    float *const row = a->work.data;

    for (int64_t i = 0; i < a->n_tokens * a->heads.n * a->n_out; i++) a->out[i] = 0.0f;
    for (int64_t head = 0; head < a->heads.n; head++)
        for (int64_t i = 0; i < apr_linear_head_rows(a); i++) {
            apr_decode_rows(a->weight, apr_linear_first_row(a, head) + i, 1, row);
            add_head_row(a, head, i, row);
        }
}

void apr_ref_linear(const apr_op_args *args)
{
    const apr_linear_args *const a = &args->linear;
    float *const row = a->work.data;

    if (a->heads.n > 0) {
        linear_of_heads(a);
        return;
    }
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
    const int64_t n = a->n_freqs, stride = a->mode == APR_ROPE_NEIGHBOURS ? 2 : 1, distance = a->mode == APR_ROPE_NEIGHBOURS ? 1 : n;

    for (int64_t row = 0; row < a->n_tokens * a->n_heads; row++) {
        const float *const x = a->x + row * a->head_dim;
        const float *const cosines = a->angles + row / a->n_heads * 2 * n, *const sines = cosines + n;
        float *const out = a->out + row * a->head_dim;

        for (int64_t i = 0; i < a->start; i++) out[i] = x[i];
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = a->start + j * stride;
            const float first = x[at], second = x[at + distance];
            out[at] = first * cosines[j] - second * sines[j];
            out[at + distance] = second * cosines[j] + first * sines[j];
        }
        for (int64_t i = a->start + 2 * n; i < a->head_dim; i++) out[i] = x[i];
    }
}

static uint8_t *cache_row(const apr_cache *cache, int64_t position, int64_t n_heads, int64_t head)
{
    return cache->data + (apr_cache_cell(cache, position) * n_heads + head) * cache->row_bytes;
}

static void store(const apr_kv_store_args *a, const apr_cache *cache, const float *x, int64_t width)
{
    for (int64_t i = 0; i < a->n_tokens * a->n_kv_heads; i++)
        apr_ref_codecs[cache->dtype].encode(x + i * width,
                                            cache_row(cache, a->position + i / a->n_kv_heads, a->n_kv_heads, i % a->n_kv_heads), width);
}

void apr_ref_kv_store(const apr_op_args *args)
{
    const apr_kv_store_args *const a = &args->kv_store;
    store(a, &a->keys, a->k, a->key_dim);
    if (a->v != NULL) store(a, &a->values, a->v, a->value_dim);
}

/* Score of one query against the key of one position; `key` is scratch for a decoded row. */
static float score_of(const apr_attend_args *a, const float *q, int64_t position, int64_t kv_head, float *key)
{
    float sum = 0.0f;
    apr_ref_codecs[a->keys.dtype].decode(cache_row(&a->keys, position, a->n_kv_heads, kv_head), key, a->key_dim);
    for (int64_t i = 0; i < a->key_dim; i++) sum += q[i] * key[i];
    return a->softcap > 0.0f ? a->softcap * tanhf(sum * a->scale / a->softcap) : sum * a->scale;
}

void apr_ref_attend(const apr_op_args *args)
{
    const apr_attend_args *const a = &args->attend;
    float *const row = a->work.data;

    for (int64_t i = 0; i < a->n_tokens * a->n_heads; i++) {
        const int64_t last = a->position + i / a->n_heads, head = i % a->n_heads, kv_head = head / (a->n_heads / a->n_kv_heads);
        const int64_t first = apr_attend_first(a, last);
        const float *const q = a->q + i * a->key_dim;
        float *const out = a->out + i * a->value_dim;
        float max = a->sinks != NULL ? a->sinks[head] : -INFINITY;

        for (int64_t p = first; p <= last; p++) max = fmaxf(max, score_of(a, q, p, kv_head, row));
        float sum = a->sinks != NULL ? expf(a->sinks[head] - max) : 0.0f;
        for (int64_t d = 0; d < a->value_dim; d++) out[d] = 0.0f;
        for (int64_t p = first; p <= last; p++) {
            const float weight = expf(score_of(a, q, p, kv_head, row) - max);
            sum += weight;
            apr_ref_codecs[a->values.dtype].decode(cache_row(&a->values, p, a->n_kv_heads, kv_head), row, a->value_dim);
            for (int64_t d = 0; d < a->value_dim; d++) out[d] += weight * row[d];
        }
        for (int64_t d = 0; d < a->value_dim; d++) out[d] /= sum;
    }
}

void apr_ref_glu(const apr_op_args *args)
{
    const apr_glu_args *const a = &args->glu;
    for (int64_t i = 0; i < a->n_tokens * a->width; i++) {
        a->out[i] = a->up != NULL ? apr_glu_of(&a->shape, a->gate[i], a->up[i]) : apr_activate(a->shape.activation, a->gate[i]);
    }
}

void apr_ref_add(const apr_op_args *args)
{
    const apr_add_args *const a = &args->add;
    for (int64_t i = 0; i < a->n_tokens * a->width; i++) a->out[i] = a->a[i] + a->b[i];
}

const apr_backend apr_ref_backend = {
    .name = "ref",
    .ops =
        {
#define X(ID, id, name) [APR_OP_##ID] = apr_ref_##id,
            APR_OP_LIST(X)
#undef X
        },
};
