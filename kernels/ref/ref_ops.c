/* ref_ops.c - the operations of a forward pass in plain loops: the definition of each. */
#include "kernels/ref/ref_ops.h"
#include "kernels/ref/choose.h"

#include <math.h>
#include <string.h>

void apr_ref_embed(const apr_op_args *args)
{
    const apr_embed_args *const a = &args->embed;
    for (int64_t t = 0; t < a->n_tokens; t++) apr_decode_rows(a->table, apr_embed_row(a, t), 1, a->out + t * a->width);
}

void apr_ref_positions(const apr_op_args *args)
{
    const apr_positions_args *const a = &args->positions;
    apr_decode_rows(a->table, a->first + a->position, a->n_tokens, a->out);
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

static const uint8_t *context_row(const apr_attend_args *a, const apr_cache *cache, int64_t at, int64_t kv_head)
{
    return cache->data + (apr_attend_cell(a, cache, at) * a->n_kv_heads + kv_head) * cache->row_bytes;
}

/* The indexer's score of one position; `key` is scratch for a decoded row. */
static float index_score(const apr_index_args *a, int64_t token, int64_t position, float *key)
{
    float score = 0.0f;

    apr_ref_codecs[a->keys.dtype].decode(cache_row(&a->keys, position, 1, 0), key, a->head_dim);
    for (int64_t h = 0; h < a->n_heads; h++) {
        const float *const q = a->q + (token * a->n_heads + h) * a->head_dim;
        float sum = 0.0f;
        for (int64_t i = 0; i < a->head_dim; i++) sum += q[i] * key[i];
        score += a->weights[token * a->n_heads + h] * fmaxf(sum, 0.0f);
    }
    return score * a->scale;
}

void apr_ref_index(const apr_op_args *args)
{
    const apr_index_args *const a = &args->index;

    for (int64_t t = 0; t < a->n_tokens; t++) {
        const int64_t own = a->position + t;
        float *const row = a->out + t * apr_index_row(a->n_chosen);
        if (own < a->n_chosen) {
            apr_choice_write_all(row, own, a->n_chosen);
            continue;
        }
        apr_choice choice = apr_choice_of(a->work.data, a->n_chosen);
        for (int64_t p = 0; p <= own; p++) apr_choice_add(&choice, index_score(a, t, p, a->work.data + 2 * a->n_chosen), (float)p);
        apr_choice_write(&choice, row);
    }
}

/* Score of one query against the key of one position of its context; `key` is scratch for a decoded row. */
static float score_of(const apr_attend_args *a, const float *q, int64_t at, int64_t kv_head, float *key)
{
    float sum = 0.0f;
    apr_ref_codecs[a->keys.dtype].decode(context_row(a, &a->keys, at, kv_head), key, a->key_dim);
    for (int64_t i = 0; i < a->key_dim; i++) sum += q[i] * key[i];
    return a->softcap > 0.0f ? a->softcap * tanhf(sum * a->scale / a->softcap) : sum * a->scale;
}

static void attend(const apr_attend_args *a)
{
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
            apr_ref_codecs[a->values.dtype].decode(context_row(a, &a->values, p, kv_head), row, a->value_dim);
            for (int64_t d = 0; d < a->value_dim; d++) out[d] += weight * row[d];
        }
        for (int64_t d = 0; d < a->value_dim; d++) out[d] /= sum;
    }
}

void apr_ref_attend(const apr_op_args *args)
{
    const apr_attend_args *const a = &args->attend;

    if (a->chosen == NULL) attend(a);
    for (int64_t t = 0; t < a->n_tokens && a->chosen != NULL; t++) {
        const apr_attend_args one = apr_attend_chosen(a, t, a->position + t);
        attend(&one);
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

/* ---- norms, elementwise operations, slices and concatenations ---- */

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

/* ---- Gemma 3n: streams of hidden states; gates of which most are 0 ---- */

static void altup_token(const apr_altup_args *a, const float *x, const float *y, const float *routed, float *out)
{
    for (int64_t i = 0; i < a->n_streams; i++) {
        float *const to = out + i * a->width;
        memcpy(to, x + i * a->width, (size_t)a->width * sizeof *to);
        for (int64_t j = 0; j < a->n_y && i >= a->first; j++) {
            const float c = apr_altup_coef(a, routed, i * a->n_y + j), *const from = y + j * a->width;
            const float *const minus = a->minus >= 0 ? x + a->minus * a->width : NULL;
            for (int64_t d = 0; d < a->width; d++) to[d] += c * (minus != NULL ? from[d] - minus[d] : from[d]);
        }
    }
}

void apr_ref_altup(const apr_op_args *args)
{
    const apr_altup_args *const a = &args->altup;
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const int64_t at = t * a->n_streams * a->width;
        altup_token(a, a->x + at, a->y + t * a->n_y * a->width, a->routed != NULL ? a->routed + t * a->n_streams : NULL, a->out + at);
    }
}

static float mean_square(const float *x, float mean, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum / (float)n;
}

void apr_ref_rescale(const apr_op_args *args)
{
    const apr_rescale_args *const a = &args->rescale;
    for (int64_t at = 0; at < a->n_tokens * a->width; at += a->width) {
        const float square = fmaxf(mean_square(a->x + at, 0.0f, a->width), a->floor);
        const float factor = sqrtf(mean_square(a->like + at, 0.0f, a->width)) / sqrtf(square);
        for (int64_t i = at; i < at + a->width; i++) a->out[i] = a->x[i] * factor;
    }
}

void apr_ref_gauss_topk(const apr_op_args *args)
{
    const apr_gauss_topk_args *const a = &args->gauss_topk;
    for (int64_t at = 0; at < a->n_tokens * a->width; at += a->width) {
        float mean = 0.0f;
        for (int64_t i = at; i < at + a->width; i++) mean += a->x[i];
        mean /= (float)a->width;
        const float least = mean + a->factor * sqrtf(mean_square(a->x + at, mean, a->width));
        for (int64_t i = at; i < at + a->width; i++) a->out[i] = fmaxf(0.0f, a->x[i] - least);
    }
}

/* ---- routing: the choice of experts; and the chosen experts' feed-forward ---- */

/* x <- exp(x - max) / sum */
static void softmax(float *x, int64_t n)
{
    float max = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < n; i++) max = fmaxf(max, x[i]);
    for (int64_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

static void score_all(const apr_route_shape *s, const float *logits, float *scores)
{
    for (int64_t e = 0; e < s->n_experts; e++)
        scores[e] = s->score == APR_SCORE_SIGMOID         ? apr_sigmoid(logits[e])
                    : s->score == APR_SCORE_SQRT_SOFTPLUS ? sqrtf(apr_softplus(logits[e]))
                                                          : logits[e];
    if (s->score == APR_SCORE_SOFTMAX) softmax(scores, s->n_experts);
}

/* The index of the largest x that is not taken yet (the lower one of equals), or -1. Taken ones are NaN, which is never chosen. */
static int64_t best_of(const float *x, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
    return best;
}

static float group_score(const apr_route_shape *s, const float *x, int64_t n)
{
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > first) {
            second = first;
            first = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return s->group_by_best || n < 2 ? first : first + second;
}

/* Sets the scores of experts outside the best groups to the filler. Returns the gap. */
static float mask_groups(const apr_route_shape *s, float *choice, float *groups)
{
    const int64_t n = s->n_experts / s->n_groups;
    float best_score = 0.0f, last = 0.0f;

    for (int64_t g = 0; g < s->n_groups; g++) groups[g] = group_score(s, choice + g * n, n);
    for (int64_t k = 0; k < s->n_groups_used; k++) {
        const int64_t best = best_of(groups, s->n_groups);
        if (best < 0) continue;
        last = groups[best];
        if (k == 0) best_score = last;
        groups[best] = NAN; /* taken */
    }
    const int64_t next = best_of(groups, s->n_groups);
    const float gap = apr_route_gap(last, next >= 0 ? groups[next] : -INFINITY, best_score);
    for (int64_t g = 0; g < s->n_groups; g++)
        if (!isnan(groups[g]))
            for (int64_t e = g * n; e < (g + 1) * n; e++) choice[e] = s->filler;
    return gap;
}

static void set_weights(const apr_route_args *a, const float *scores, const float *chosen, float *weights)
{
    const apr_route_shape *const s = &a->shape;
    float sum = 0.0f;

    for (int64_t k = 0; k < s->n_used; k++) weights[k] = scores[(int64_t)chosen[k]];
    if (s->score == APR_SCORE_TOPK_SOFTMAX) softmax(weights, s->n_used);
    for (int64_t k = 0; k < s->n_used && s->score == APR_SCORE_TOPK_SIGMOID; k++) weights[k] = apr_sigmoid(weights[k]);
    for (int64_t k = 0; k < s->n_used; k++) sum += weights[k];
    const float divisor = s->normalise ? fmaxf(sum + s->norm_eps, s->norm_min) : 1.0f;
    for (int64_t k = 0; k < s->n_used; k++) {
        weights[k] = weights[k] / divisor * s->scale;
        if (a->expert_scale != NULL) weights[k] *= a->expert_scale[(int64_t)chosen[k]];
    }
}

void apr_ref_route_one(const apr_route_args *a, int64_t token, float *work)
{
    const apr_route_shape *const s = &a->shape;
    float *const scores = work, *const choice = work + s->n_experts, *const out = a->out + token * apr_route_row(s->n_used);
    float gap = INFINITY, best_score = 0.0f, last = 0.0f;

    score_all(s, a->logits + token * s->n_experts, scores);
    for (int64_t e = 0; e < s->n_experts; e++) choice[e] = a->bias != NULL ? scores[e] + a->bias[e] : scores[e];
    if (s->n_groups > 1 && s->n_groups_used > 0 && s->n_groups_used < s->n_groups) gap = mask_groups(s, choice, choice + s->n_experts);
    for (int64_t k = 0; k < s->n_used; k++) {
        int64_t best = best_of(choice, s->n_experts);
        if (best < 0) best = 0; /* all scores are NaN: still a valid expert index */
        out[k] = (float)best;
        last = choice[best];
        if (k == 0) best_score = last;
        choice[best] = NAN;
    }
    const int64_t next = best_of(choice, s->n_experts);
    out[2 * s->n_used] = fminf(gap, apr_route_gap(last, next >= 0 ? choice[next] : -INFINITY, best_score));
    set_weights(a, scores, out, out + s->n_used);
}

void apr_ref_route(const apr_op_args *args)
{
    const apr_route_args *const a = &args->route;
    for (int64_t t = 0; t < a->n_tokens; t++) apr_ref_route_one(a, t, a->work.data);
}

/* out[r] = matrix row r * x + bias[r]; `row` is a buffer for a decoded row. */
static void multiply(const apr_tensor *matrix, const float *x, int64_t n_in, int64_t n_out, const float *bias, float *row, float *out)
{
    for (int64_t r = 0; r < n_out; r++) {
        float sum = 0.0f;
        apr_decode_rows(matrix, r, 1, row);
        for (int64_t i = 0; i < n_in; i++) sum += x[i] * row[i];
        out[r] = bias != NULL ? sum + bias[r] : sum;
    }
}

/* The hidden row of expert e: glu(gate x, up x), or activation(up x). */
static void make_hidden(const apr_experts_args *a, int64_t e, const float *x, float *row, float *hidden)
{
    const float *const up_bias = a->up_bias != NULL ? a->up_bias + e * a->n_mid : NULL;
    multiply(&a->up[e], x, a->n_in, a->n_mid, up_bias, row, hidden);
    for (int64_t j = 0; j < a->n_mid; j++) {
        float gate = 0.0f;
        if (a->gate == NULL) {
            hidden[j] = apr_activate(a->glu.activation, hidden[j]);
            continue;
        }
        apr_decode_rows(&a->gate[e], j, 1, row);
        for (int64_t i = 0; i < a->n_in; i++) gate += x[i] * row[i];
        if (a->gate_bias != NULL) gate += a->gate_bias[e * a->n_mid + j];
        hidden[j] = apr_glu_of(&a->glu, gate, hidden[j]);
    }
}

static void add_expert(const apr_experts_args *a, int64_t e, float weight, const float *x, float *out)
{
    const int64_t longest = a->n_in > a->n_mid ? a->n_in : a->n_mid;
    float *const row = a->work.data, *const hidden = row + longest, *const weighed = hidden + a->n_mid;

    for (int64_t i = 0; i < a->n_in; i++) weighed[i] = a->weight_on_input ? x[i] * weight : x[i];
    make_hidden(a, e, weighed, row, hidden);
    for (int64_t r = 0; r < a->n_out; r++) {
        float sum = 0.0f;
        apr_decode_rows(&a->down[e], r, 1, row);
        for (int64_t j = 0; j < a->n_mid; j++) sum += hidden[j] * row[j];
        if (a->down_bias != NULL) sum += a->down_bias[e * a->n_out + r];
        out[r] += a->weight_on_input ? sum : sum * weight;
    }
}

void apr_ref_experts(const apr_op_args *args)
{
    const apr_experts_args *const a = &args->experts;
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const float *const chosen = a->routes + t * apr_route_row(a->n_used), *const weights = chosen + a->n_used;
        float *const out = a->out + t * a->n_out;
        for (int64_t r = 0; r < a->n_out; r++) out[r] = 0.0f;
        for (int64_t k = 0; k < a->n_used; k++) add_expert(a, (int64_t)chosen[k], weights[k], a->x + t * a->n_in, out);
    }
}

/* ---- operations with a state: convolution over time, delta rule, state-space duality; one step a token ---- */

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
    const int64_t at = token * a->n_value_heads + head, n_gates = apr_delta_gates(a);
    const float beta = apr_sigmoid(a->b[at]);
    float *const q = work, *const k = q + dk, *const error = k + dk, *const s = a->state + head * dk * dv, *const out = a->out + at * dv;

    l2_norm(qkv + key_head * dk, dk, a->eps, 1.0f / sqrtf((float)dk), q);
    l2_norm(qkv + n_keys + key_head * dk, dk, a->eps, 1.0f, k);
    for (int64_t i = 0; i < dk; i++) {
        const int64_t gate = n_gates > 1 ? i : 0;
        const float decay = expf(apr_delta_log_decay(a, a->rate[head], a->a[at * n_gates + gate] + a->dt_bias[head * n_gates + gate]));
        for (int64_t j = 0; j < dv; j++) s[i * dv + j] *= decay;
    }
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

void apr_ref_delta_head(const apr_delta_args *a, int64_t head, float *work)
{
    for (int64_t t = 0; t < a->n_tokens; t++) delta_step(a, t, head, work);
}

void apr_ref_delta(const apr_op_args *args)
{
    const apr_delta_args *const a = &args->delta;
    for (int64_t h = 0; h < a->n_value_heads; h++) apr_ref_delta_head(a, h, a->work.data);
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

void apr_ref_ssd_head(const apr_ssd_args *a, int64_t head)
{
    for (int64_t t = 0; t < a->n_tokens; t++) ssd_step(a, t, head);
}

void apr_ref_ssd(const apr_op_args *args)
{
    const apr_ssd_args *const a = &args->ssd;
    for (int64_t h = 0; h < a->n_heads; h++) apr_ref_ssd_head(a, h);
}

/* ---- the table ---- */

const apr_backend apr_ref_backend = {
    .name = "ref",
    .ops =
        {
#define X(ID, id, name) [APR_OP_##ID] = apr_ref_##id,
            APR_OP_LIST(X)
#undef X
        },
};
