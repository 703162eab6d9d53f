/* experts.h - routing and the experts' feed-forward. The choice of experts is constant: gradients go through the weights of the chosen.
 *
 * A routed token has its row in `routes`: the experts' numbers, their weights, the gap (kernels/op_args.h). The gradient of the weights
 * is kept in the same places of the routes' gradient. */
#ifndef APR_KERNELS_HOST_GRAD_EXPERTS_H
#define APR_KERNELS_HOST_GRAD_EXPERTS_H

#include "kernels/host/grad/products.h"
#include "kernels/ref/ref_ops.h"

/* ---- routing ---- */

/* Scratch of a row: what the choice in float32 needs, in floats; then the probabilities, and scores and gradients of the chosen experts. */
static size_t route_work(const apr_grad_call *c)
{
    const apr_route_shape *const s = &c->args->route.shape;
    const size_t n_floats = apr_route_slice(s->n_experts) + 2 * (size_t)s->n_experts + (size_t)apr_route_row(s->n_used);
    return n_floats + (size_t)s->n_experts + 2 * (size_t)s->n_used;
}

/* The experts of a row, as kernels/ref chooses them, into out[n_used], and the gap after the weights. */
static void choose_experts(const apr_grad_call *c, const num *logits, num *out)
{
    const apr_route_shape *const s = &c->args->route.shape;
    float *const given = c->work, *const bias = given + s->n_experts, *const chosen = bias + s->n_experts;
    const apr_route_args one = {.n_tokens = 1, .shape = *s, .logits = given, .bias = c->weight[0] != NULL ? bias : NULL, .out = chosen};

    for (int64_t e = 0; e < s->n_experts; e++) given[e] = (float)logits[e];
    for (int64_t e = 0; e < s->n_experts && c->weight[0] != NULL; e++) bias[e] = (float)((const num *)c->weight[0])[e];
    apr_ref_route_one(&one, 0, chosen + apr_route_row(s->n_used));
    for (int64_t k = 0; k < s->n_used; k++) out[k] = (num)chosen[k];
    out[2 * s->n_used] = (num)chosen[2 * s->n_used];
}

/* x <- softmax(x) of n numbers, from a copy of `from`. */
static void softmax_of(const num *from, int64_t n, num *x)
{
    num most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = from[i] > most ? from[i] : most;
    for (int64_t i = 0; i < n; i++) sum += x[i] = MATH(exp)(from[i] - most);
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

/* The scores of the chosen experts before they are normalised. probabilities: [n_experts], of the softmax over all. */
static void score_chosen(const apr_grad_call *c, const num *logits, const num *chosen, num *probabilities, num *scores)
{
    const apr_route_shape *const s = &c->args->route.shape;

    if (s->score == APR_SCORE_SOFTMAX) softmax_of(logits, s->n_experts, probabilities);
    for (int64_t k = 0; k < s->n_used; k++) {
        const int64_t e = (int64_t)chosen[k];
        if (s->score == APR_SCORE_SOFTMAX) scores[k] = probabilities[e];
        else if (s->score == APR_SCORE_TOPK_SOFTMAX) scores[k] = logits[e];
        else scores[k] = s->score == APR_SCORE_SQRT_SOFTPLUS ? MATH(sqrt)(softplus(logits[e])) : sigmoid(logits[e]);
    }
    if (s->score == APR_SCORE_TOPK_SOFTMAX) softmax_of(scores, s->n_used, scores);
}

/* Sum of the scores that they are divided by, and whether it follows them. */
typedef struct route_divisor {
    num value;
    bool is_sum;
} route_divisor;

static route_divisor route_divisor_of(const apr_route_shape *s, const num *scores)
{
    num sum = (num)s->norm_eps;
    if (!s->normalise) return (route_divisor){1, false};
    for (int64_t k = 0; k < s->n_used; k++) sum += scores[k];
    return sum > (num)s->norm_min ? (route_divisor){sum, true} : (route_divisor){(num)s->norm_min, false};
}

static num expert_scale(const apr_grad_call *c, num expert)
{
    return c->args->route.shape.scale * (c->weight[1] != NULL ? ((const num *)c->weight[1])[(int64_t)expert] : 1);
}

static num *route_probabilities(const apr_grad_call *c)
{
    const apr_route_shape *const s = &c->args->route.shape;
    return (num *)c->work + apr_route_slice(s->n_experts) + 2 * (size_t)s->n_experts + (size_t)apr_route_row(s->n_used);
}

static void route_forward(const apr_grad_call *c)
{
    const apr_route_shape *const s = &c->args->route.shape;
    for (int64_t r = 0; r < c->n_rows; r++) {
        const num *const logits = (const num *)c->in[0] + r * s->n_experts;
        num *const out = (num *)c->out + r * apr_route_row(s->n_used), *const weights = out + s->n_used;
        choose_experts(c, logits, out);
        score_chosen(c, logits, out, route_probabilities(c), weights);
        const num divisor = route_divisor_of(s, weights).value;
        for (int64_t k = 0; k < s->n_used; k++) weights[k] = weights[k] / divisor * expert_scale(c, out[k]);
    }
}

/* Replaces the gradient by the chosen experts' weights with that by their scores, and adds the gradient by the experts' scales. */
static void backward_normalised(const apr_grad_call *c, const num *chosen, const num *scores, num *d)
{
    const apr_route_shape *const s = &c->args->route.shape;
    const route_divisor divisor = route_divisor_of(s, scores);
    num along = 0;

    for (int64_t k = 0; k < s->n_used; k++) {
        if (c->d_weight[1] != NULL) ((num *)c->d_weight[1])[(int64_t)chosen[k]] += d[k] * scores[k] / divisor.value * (num)s->scale;
        d[k] *= expert_scale(c, chosen[k]);
        along += d[k] * scores[k] / divisor.value;
    }
    for (int64_t k = 0; k < s->n_used; k++) d[k] = (d[k] - (divisor.is_sum ? along : 0)) / divisor.value;
}

/* From the gradient by scores to that by logits. */
static void backward_scores_of(const apr_grad_call *c, const num *chosen, const num *scores, const num *logits, const num *d, num *d_logits)
{
    const apr_route_shape *const s = &c->args->route.shape;
    const bool over_chosen = s->score == APR_SCORE_TOPK_SOFTMAX, over_all = s->score == APR_SCORE_SOFTMAX;
    num along = 0;

    for (int64_t k = 0; k < s->n_used; k++) along += d[k] * scores[k];
    for (int64_t e = 0; e < s->n_experts && over_all; e++) d_logits[e] -= route_probabilities(c)[e] * along;
    for (int64_t k = 0; k < s->n_used; k++) {
        const int64_t e = (int64_t)chosen[k];
        if (over_all) d_logits[e] += d[k] * scores[k];
        else if (over_chosen) d_logits[e] += scores[k] * (d[k] - along);
        else if (s->score == APR_SCORE_SQRT_SOFTPLUS) d_logits[e] += d[k] * softplus_slope(logits[e]) / (2 * scores[k]);
        else d_logits[e] += d[k] * scores[k] * (1 - scores[k]);
    }
}

static void route_backward(const apr_grad_call *c)
{
    const apr_route_shape *const s = &c->args->route.shape;
    num *const scores = route_probabilities(c) + s->n_experts, *const d = scores + s->n_used;

    for (int64_t r = 0; r < c->n_rows; r++) {
        const num *const logits = (const num *)c->in[0] + r * s->n_experts;
        const num *const chosen = (const num *)c->out + r * apr_route_row(s->n_used);
        memcpy(d, (const num *)c->d_out + r * apr_route_row(s->n_used) + s->n_used, (size_t)s->n_used * sizeof *d);
        score_chosen(c, logits, chosen, route_probabilities(c), scores);
        backward_normalised(c, chosen, scores, d);
        if (c->d_in[0] != NULL) backward_scores_of(c, chosen, scores, logits, d, (num *)c->d_in[0] + r * s->n_experts);
    }
}

/* ---- the chosen experts' feed-forward ---- */

enum { X_GATE, X_UP, X_DOWN, X_GATE_BIAS, X_UP_BIAS, X_DOWN_BIAS }; /* as runtime/program/ops/op_experts.c lists the weights */

/* One expert, and the tokens that are routed to it. */
typedef struct expert {
    const apr_grad_call *c;
    int64_t e, n; /* n tokens: */
    int64_t *rows, *ranks;
    num *x, *gate, *up, *mid, *out; /* [n, n_in] (times the weights, where these are on the inputs), [n, n_mid] ..., [n, n_out] */
    num *d_gate, *d_up, *d_mid, *d_out, *d_x;
} expert;

static size_t experts_row(const apr_experts_args *a) { return (size_t)(2 * (a->n_in + a->n_out) + 6 * a->n_mid); }

static size_t experts_work(const apr_grad_call *c)
{
    const size_t n_numbers = 2 * sizeof(int64_t) / sizeof(num); /* of a row's number and rank */
    return (size_t)c->n_rows * (experts_row(&c->args->experts) + n_numbers);
}

static const num *expert_route(const expert *x, int64_t i)
{
    return (const num *)x->c->in[1] + x->rows[i] * apr_route_row(x->c->args->experts.n_used);
}
static num expert_weight(const expert *x, int64_t i) { return expert_route(x, i)[x->c->args->experts.n_used + x->ranks[i]]; }

static void find_tokens(expert *x)
{
    const int64_t n_used = x->c->args->experts.n_used;
    const num *const routes = x->c->in[1];

    x->n = 0;
    for (int64_t r = 0; r < x->c->n_rows; r++)
        for (int64_t k = 0; k < n_used; k++)
            if ((int64_t)routes[r * apr_route_row(n_used) + k] == x->e) {
                x->rows[x->n] = r;
                x->ranks[x->n] = k;
                x->n++;
                break; /* an expert is chosen once */
            }
}

static expert expert_of(const apr_grad_call *c, int64_t e)
{
    const apr_experts_args *const a = &c->args->experts;
    expert x = {.c = c, .e = e, .rows = c->work};
    x.ranks = x.rows + c->n_rows;
    find_tokens(&x);
    num *at = (num *)(void *)(x.ranks + c->n_rows);
    num **const wide[] = {&x.gate, &x.up, &x.mid, &x.d_gate, &x.d_up, &x.d_mid};
    for (int i = 0; i < 6; i++, at += x.n * a->n_mid) *wide[i] = at;
    x.x = at;
    x.d_x = x.x + x.n * a->n_in;
    x.out = x.d_x + x.n * a->n_in;
    x.d_out = x.out + x.n * a->n_out;
    return x;
}

static const num *expert_matrix(const expert *x, int which, int64_t n_numbers)
{
    const num *const all = x->c->weight[which];
    return all != NULL ? all + x->e * n_numbers : NULL;
}

static num *expert_gradient(const expert *x, int which, int64_t n_numbers)
{
    num *const all = x->c->d_weight[which];
    return all != NULL ? all + x->e * n_numbers : NULL;
}

/* out = in * matrix^T + bias */
static void expert_product(const expert *x, int which, const num *in, int64_t n_in, int64_t n_out, num *out)
{
    const product y = {.a = rows_of(in, n_in),
                       .b = transposed(expert_matrix(x, which, n_in * n_out), n_in),
                       .c = out,
                       .c_row = n_out,
                       .m = x->n,
                       .n = n_out,
                       .k = n_in};
    set_rows(out, x->n, n_out, expert_matrix(x, which + X_GATE_BIAS, n_out));
    multiply(x->c, &y);
}

/* d_in += d_out * matrix; adds to the gradients of the matrix and of the bias. */
static void expert_product_backward(const expert *x, int which, const num *in, const num *d_out, int64_t n_in, int64_t n_out, num *d_in)
{
    const product dx = {.a = rows_of(d_out, n_out),
                        .b = rows_of(expert_matrix(x, which, n_in * n_out), n_in),
                        .c = d_in,
                        .c_row = n_in,
                        .m = x->n,
                        .n = n_in,
                        .k = n_out};
    const product dw = {.a = transposed(d_out, n_out),
                        .b = rows_of(in, n_in),
                        .c = expert_gradient(x, which, n_in * n_out),
                        .c_row = n_in,
                        .m = n_out,
                        .n = n_in,
                        .k = x->n};
    num *const bias = expert_gradient(x, which + X_GATE_BIAS, n_out);

    multiply(x->c, &dx);
    if (dw.c != NULL) multiply(x->c, &dw);
    if (bias != NULL) add_rows(d_out, x->n, n_out, n_out, bias);
}

static void expert_forward(const expert *x)
{
    const apr_experts_args *const a = &x->c->args->experts;
    const bool has_gate = x->c->weight[X_GATE] != NULL;

    for (int64_t i = 0; i < x->n; i++) {
        const num factor = a->weight_on_input ? expert_weight(x, i) : 1;
        for (int64_t j = 0; j < a->n_in; j++) x->x[i * a->n_in + j] = ((const num *)x->c->in[0])[x->rows[i] * a->n_in + j] * factor;
    }
    if (has_gate) expert_product(x, X_GATE, x->x, a->n_in, a->n_mid, x->gate);
    expert_product(x, X_UP, x->x, a->n_in, a->n_mid, x->up);
    for (int64_t i = 0; i < x->n * a->n_mid; i++)
        x->mid[i] = has_gate ? glu_of(&a->glu, x->gate[i], x->up[i]).out : activate(a->glu.activation, x->up[i]);
    expert_product(x, X_DOWN, x->mid, a->n_mid, a->n_out, x->out);
}

static void experts_forward(const apr_grad_call *c)
{
    const apr_experts_args *const a = &c->args->experts;

    memset(c->out, 0, (size_t)(c->n_rows * a->n_out) * sizeof(num));
    for (int64_t e = 0; e < a->n_experts; e++) {
        const expert x = expert_of(c, e);
        if (x.n == 0) continue;
        expert_forward(&x);
        for (int64_t i = 0; i < x.n; i++) {
            const num factor = a->weight_on_input ? 1 : expert_weight(&x, i);
            for (int64_t j = 0; j < a->n_out; j++) ((num *)c->out)[x.rows[i] * a->n_out + j] += factor * x.out[i * a->n_out + j];
        }
    }
}

static void expert_backward_glu(const expert *x)
{
    const apr_experts_args *const a = &x->c->args->experts;
    for (int64_t i = 0; i < x->n * a->n_mid; i++) {
        if (x->c->weight[X_GATE] == NULL) {
            x->d_up[i] = x->d_mid[i] * activation_slope(a->glu.activation, x->up[i]);
            continue;
        }
        const glu_value v = glu_of(&a->glu, x->gate[i], x->up[i]);
        x->d_gate[i] = x->d_mid[i] * v.by_gate;
        x->d_up[i] = x->d_mid[i] * v.by_up;
    }
}

/* Where the gradient of a token's weight is, or NULL. */
static num *expert_weight_gradient(const expert *x, int64_t i)
{
    const int64_t n_used = x->c->args->experts.n_used;
    num *const routes = x->c->d_in[1];
    return routes != NULL ? routes + x->rows[i] * apr_route_row(n_used) + n_used + x->ranks[i] : NULL;
}

static num dot(const num *a, const num *b, int64_t n)
{
    num sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The gradient of the outputs and, where outputs are weighted, of the weights. */
static void expert_backward_outputs(const expert *x)
{
    const apr_experts_args *const a = &x->c->args->experts;
    for (int64_t i = 0; i < x->n; i++) {
        const num *const d = (const num *)x->c->d_out + x->rows[i] * a->n_out, factor = a->weight_on_input ? 1 : expert_weight(x, i);
        num *const by_weight = expert_weight_gradient(x, i);
        if (!a->weight_on_input && by_weight != NULL) *by_weight += dot(d, x->out + i * a->n_out, a->n_out);
        for (int64_t j = 0; j < a->n_out; j++) x->d_out[i * a->n_out + j] = factor * d[j];
    }
}

static void expert_backward_inputs(const expert *x)
{
    const apr_experts_args *const a = &x->c->args->experts;
    for (int64_t i = 0; i < x->n; i++) {
        const num *const in = (const num *)x->c->in[0] + x->rows[i] * a->n_in, factor = a->weight_on_input ? expert_weight(x, i) : 1;
        num *const by_weight = expert_weight_gradient(x, i), *const d_in = x->c->d_in[0];
        if (a->weight_on_input && by_weight != NULL) *by_weight += dot(in, x->d_x + i * a->n_in, a->n_in);
        for (int64_t j = 0; j < a->n_in && d_in != NULL; j++) d_in[x->rows[i] * a->n_in + j] += factor * x->d_x[i * a->n_in + j];
    }
}

static void experts_backward(const apr_grad_call *c)
{
    const apr_experts_args *const a = &c->args->experts;

    for (int64_t e = 0; e < a->n_experts; e++) {
        const expert x = expert_of(c, e);
        if (x.n == 0) continue;
        expert_forward(&x);
        expert_backward_outputs(&x);
        memset(x.d_mid, 0, (size_t)(x.n * a->n_mid) * sizeof(num));
        memset(x.d_x, 0, (size_t)(x.n * a->n_in) * sizeof(num));
        expert_product_backward(&x, X_DOWN, x.mid, x.d_out, a->n_mid, a->n_out, x.d_mid);
        expert_backward_glu(&x);
        if (c->weight[X_GATE] != NULL) expert_product_backward(&x, X_GATE, x.x, x.d_gate, a->n_in, a->n_mid, x.d_x);
        expert_product_backward(&x, X_UP, x.x, x.d_up, a->n_in, a->n_mid, x.d_x);
        expert_backward_inputs(&x);
    }
}

#endif
