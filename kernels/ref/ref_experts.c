/* ref_experts.c - routing: the choice of experts; and the chosen experts' feed-forward. */
#include "kernels/ref/ref_ops.h"
#include "kernels/rows.h"

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
