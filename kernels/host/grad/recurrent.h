/* recurrent.h - operations with a state: convolution over time, delta rule, state-space duality. States begin as zeros in each window.
 *
 * A backward pass goes from the last token to the first, and needs the state before each. States are kept before every CHUNK-th token;
 * those within a chunk are computed again, chunk after chunk from the last. */
#ifndef APR_KERNELS_HOST_GRAD_RECURRENT_H
#define APR_KERNELS_HOST_GRAD_RECURRENT_H

#include "kernels/host/grad/numbers.h"

enum { CHUNK = 32 };

/* ---- convolution: a thread takes a channel ---- */

static num conv_sum(const apr_grad_call *c, int64_t start, int64_t t, int64_t channel)
{
    const apr_conv_args *const a = &c->args->conv;
    const num *const x = (const num *)c->in[0] + start * a->width + channel, *const w = (const num *)c->weight[0] + channel * a->n_taps;
    num sum = 0;
    for (int64_t k = 0; k < a->n_taps; k++) {
        const int64_t at = t - (a->n_taps - 1) + k;
        if (at >= 0) sum += w[k] * x[at * a->width];
    }
    return c->weight[1] != NULL ? sum + ((const num *)c->weight[1])[channel] : sum;
}

static void conv_forward(const apr_grad_call *c)
{
    const apr_conv_args *const a = &c->args->conv;
#pragma omp parallel for num_threads(threads_for(c, a->width, (double)(c->n_rows * a->width) * APR_OPS_EXP))
    for (int64_t channel = 0; channel < a->width; channel++)
        for (int64_t r = 0; r < c->n_rows; r++)
            ((num *)c->out)[r * a->width + channel] =
                activate(a->activation, conv_sum(c, r / c->n_positions * c->n_positions, r % c->n_positions, channel));
}

static void conv_backward_at(const apr_grad_call *c, int64_t start, int64_t t, int64_t channel)
{
    const apr_conv_args *const a = &c->args->conv;
    const int64_t first = start * a->width + channel;
    const num *const x = (const num *)c->in[0] + first, *const w = (const num *)c->weight[0] + channel * a->n_taps;
    const num d = ((const num *)c->d_out)[first + t * a->width] * activation_slope(a->activation, conv_sum(c, start, t, channel));
    num *const d_x = c->d_in[0], *const d_w = c->d_weight[0], *const d_bias = c->d_weight[1];

    for (int64_t k = 0; k < a->n_taps; k++) {
        const int64_t at = t - (a->n_taps - 1) + k;
        if (at < 0) continue;
        if (d_x != NULL) d_x[first + at * a->width] += d * w[k];
        if (d_w != NULL) d_w[channel * a->n_taps + k] += d * x[at * a->width];
    }
    if (d_bias != NULL) d_bias[channel] += d;
}

static void conv_backward(const apr_grad_call *c)
{
    const apr_conv_args *const a = &c->args->conv;
#pragma omp parallel for num_threads(threads_for(c, a->width, (double)(c->n_rows * a->width) * APR_OPS_EXP))
    for (int64_t channel = 0; channel < a->width; channel++)
        for (int64_t r = 0; r < c->n_rows; r++) conv_backward_at(c, r / c->n_positions * c->n_positions, r % c->n_positions, channel);
}

/* ---- states in chunks ---- */

/* The states of one head: that of the running token, its gradient, one before each chunk, and one before each token of a chunk. */
typedef struct state_history {
    int64_t size;
    num *state, *d_state, *of_chunks, *of_tokens;
} state_history;

static size_t history_numbers(const apr_grad_call *c, int64_t size)
{
    return (size_t)size * (2 + (size_t)((c->n_positions + CHUNK - 1) / CHUNK) + CHUNK);
}

static state_history history_at(const apr_grad_call *c, num *work, int64_t size)
{
    const int64_t n_chunks = (c->n_positions + CHUNK - 1) / CHUNK;
    state_history h = {.size = size, .state = work, .d_state = work + size, .of_chunks = work + 2 * size};
    h.of_tokens = h.of_chunks + n_chunks * size;
    memset(h.state, 0, (size_t)size * sizeof(num));
    memset(h.d_state, 0, (size_t)size * sizeof(num));
    return h;
}

/* One token: forward updates the state; backward gets the state before it, and makes d_state the gradient by that. */
typedef void (*step_fn)(const void *head, int64_t t, num *state);
typedef void (*step_back_fn)(const void *head, int64_t t, const num *before, num *d_state);

static void run_back(const apr_grad_call *c, state_history *h, const void *head, step_fn step, step_back_fn step_back)
{
    const size_t bytes = (size_t)h->size * sizeof(num);

    for (int64_t t = 0; t < c->n_positions; t++) {
        if (t % CHUNK == 0) memcpy(h->of_chunks + t / CHUNK * h->size, h->state, bytes);
        step(head, t, h->state);
    }
    for (int64_t chunk = (c->n_positions - 1) / CHUNK; chunk >= 0; chunk--) {
        const int64_t begin = chunk * CHUNK, end = begin + CHUNK < c->n_positions ? begin + CHUNK : c->n_positions;
        memcpy(h->state, h->of_chunks + chunk * h->size, bytes);
        for (int64_t t = begin; t < end; t++) {
            memcpy(h->of_tokens + (t - begin) * h->size, h->state, bytes);
            step(head, t, h->state);
        }
        for (int64_t t = end - 1; t >= begin; t--) step_back(head, t, h->of_tokens + (t - begin) * h->size, h->d_state);
    }
}

/* ---- the gated delta rule: a thread takes a key head with its value heads ---- */

/* A value head in a window. Scratch: normed query and key with their gradients, the decay of each row of the state with the gradient by
 * its logarithm, and the errors of the values with theirs. */
typedef struct delta_head {
    const apr_grad_call *c;
    int64_t start, head, key_head;
    bool writes; /* the output of a forward pass */
    num *q, *k, *d_q, *d_k, *decay, *d_log, *error, *d_error;
} delta_head;

/* Numbers of one token: where q, k, v and the gates are given, and what the step follows from. */
typedef struct delta_token {
    int64_t q_at, k_at, v_at, head_at, gates_at;
    num q_scale, k_scale, beta;
} delta_token;

/* The logarithm of the decay from x = a + dt_bias, and its slopes by x and by the rate. */
typedef struct delta_gate {
    num log_decay, by_x, by_rate;
} delta_gate;

static delta_gate delta_gate_of(const apr_delta_args *a, num rate, num x)
{
    if (!(a->floor < 0.0f)) return (delta_gate){-rate * softplus(x), -rate * softplus_slope(x), -softplus(x)};
    const num floor = (num)a->floor, s = sigmoid(rate * x), slope = floor * s * (1 - s);
    return (delta_gate){floor * s, slope * rate, slope * x};
}

static num l2_scale(const num *x, int64_t n, num eps)
{
    num sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return 1 / MATH(sqrt)(sum + eps);
}

static delta_gate delta_gate_at(const delta_head *h, const delta_token *d, int64_t i)
{
    const apr_delta_args *const a = &h->c->args->delta;
    const num *const rate = h->c->weight[0], *const dt_bias = h->c->weight[1];
    return delta_gate_of(a, rate[h->head], ((const num *)h->c->in[1])[d->gates_at + i] + dt_bias[h->head * apr_delta_gates(a) + i]);
}

static delta_token delta_token_of(const delta_head *h, int64_t t)
{
    const apr_delta_args *const a = &h->c->args->delta;
    const int64_t n_keys = a->n_key_heads * a->key_dim, row = h->start + t;
    const int64_t at = row * (2 * n_keys + a->n_value_heads * a->value_dim);
    const int64_t n_gates = apr_delta_gates(a);
    const num *const qkv = h->c->in[0];
    delta_token d = {.q_at = at + h->key_head * a->key_dim, .head_at = row * a->n_value_heads + h->head};

    d.k_at = d.q_at + n_keys;
    d.v_at = at + 2 * n_keys + h->head * a->value_dim;
    d.q_scale = l2_scale(qkv + d.q_at, a->key_dim, (num)a->eps);
    d.k_scale = l2_scale(qkv + d.k_at, a->key_dim, (num)a->eps);
    d.gates_at = d.head_at * n_gates;
    for (int64_t i = 0; i < a->key_dim; i++) h->decay[i] = i >= n_gates ? h->decay[0] : MATH(exp)(delta_gate_at(h, &d, i).log_decay);
    d.beta = sigmoid(((const num *)h->c->in[2])[d.head_at]);
    for (int64_t i = 0; i < a->key_dim; i++) {
        h->q[i] = qkv[d.q_at + i] * d.q_scale / MATH(sqrt)((num)a->key_dim);
        h->k[i] = qkv[d.k_at + i] * d.k_scale;
    }
    return d;
}

/* The values' errors: v - (decayed state)^T k. */
static void delta_errors(const delta_head *h, const delta_token *d, const num *state)
{
    const apr_delta_args *const a = &h->c->args->delta;
    memcpy(h->error, (const num *)h->c->in[0] + d->v_at, (size_t)a->value_dim * sizeof(num));
    for (int64_t i = 0; i < a->key_dim; i++)
        for (int64_t j = 0; j < a->value_dim; j++) h->error[j] -= h->decay[i] * state[i * a->value_dim + j] * h->k[i];
}

static void delta_step(const void *head, int64_t t, num *state)
{
    const delta_head *const h = head;
    const apr_delta_args *const a = &h->c->args->delta;
    const delta_token d = delta_token_of(h, t);
    num *const out = (num *)h->c->out + d.head_at * a->value_dim;

    delta_errors(h, &d, state);
    for (int64_t j = 0; j < a->value_dim && h->writes; j++) out[j] = 0;
    for (int64_t i = 0; i < a->key_dim; i++)
        for (int64_t j = 0; j < a->value_dim; j++) {
            num *const s = &state[i * a->value_dim + j];
            *s = h->decay[i] * *s + h->k[i] * d.beta * h->error[j];
            if (h->writes) out[j] += *s * h->q[i];
        }
}

/* d x of y = x * scale * factor, scale = 1 / |x|. */
static void l2_backward(const num *x, int64_t n, num scale, num factor, const num *d_y, num *d_x)
{
    num along = 0;
    for (int64_t i = 0; i < n; i++) along += d_y[i] * x[i] * scale;
    for (int64_t i = 0; i < n; i++) d_x[i] += factor * scale * (d_y[i] - x[i] * scale * along);
}

/* Of the gates. Rows of the state without a gate of their own share the first. */
static void delta_give_back_gates(const delta_head *h, const delta_token *d)
{
    const apr_grad_call *const c = h->c;
    const apr_delta_args *const a = &c->args->delta;
    const int64_t n_gates = apr_delta_gates(a);

    for (int64_t i = n_gates; i < a->key_dim; i++) h->d_log[0] += h->d_log[i];
    for (int64_t i = 0; i < n_gates; i++) {
        const delta_gate gate = delta_gate_at(h, d, i);
        if (c->d_in[1] != NULL) ((num *)c->d_in[1])[d->gates_at + i] += h->d_log[i] * gate.by_x;
        if (c->d_weight[0] != NULL) ((num *)c->d_weight[0])[h->head] += h->d_log[i] * gate.by_rate;
        if (c->d_weight[1] != NULL) ((num *)c->d_weight[1])[h->head * n_gates + i] += h->d_log[i] * gate.by_x;
    }
}

/* Adds the gradients by what a token is given, once those by q, k, error, decays and beta are known. */
static void delta_give_back(const delta_head *h, const delta_token *d, num d_beta)
{
    const apr_grad_call *const c = h->c;
    const apr_delta_args *const a = &c->args->delta;
    const num *const qkv = c->in[0];
    num *const d_qkv = c->d_in[0];

    if (d_qkv != NULL) {
        l2_backward(qkv + d->q_at, a->key_dim, d->q_scale, 1 / MATH(sqrt)((num)a->key_dim), h->d_q, d_qkv + d->q_at);
        l2_backward(qkv + d->k_at, a->key_dim, d->k_scale, 1, h->d_k, d_qkv + d->k_at);
        for (int64_t j = 0; j < a->value_dim; j++) d_qkv[d->v_at + j] += h->d_error[j];
    }
    if (c->d_in[2] != NULL) ((num *)c->d_in[2])[d->head_at] += d_beta * d->beta * (1 - d->beta);
    delta_give_back_gates(h, d);
}

/* S' = decay S + k (beta e)^T, e = v - (decay S)^T k, out = S'^T q; decay: one number a row of S. */
static void delta_step_back(const void *head, int64_t t, const num *before, num *d_state)
{
    const delta_head *const h = head;
    const apr_delta_args *const a = &h->c->args->delta;
    const delta_token d = delta_token_of(h, t);
    const num *const d_out = (const num *)h->c->d_out + d.head_at * a->value_dim;
    const int64_t width = a->value_dim;
    num d_beta = 0;

    delta_errors(h, &d, before);
    memset(h->d_error, 0, (size_t)width * sizeof(num));
    for (int64_t i = 0; i < a->key_dim; i++) {
        num of_q = 0, of_k = 0;
        for (int64_t j = 0; j < width; j++) {
            const num after = h->decay[i] * before[i * width + j] + h->k[i] * d.beta * h->error[j];
            num *const ds = &d_state[i * width + j];
            *ds += h->q[i] * d_out[j];
            of_q += after * d_out[j];
            of_k += *ds * d.beta * h->error[j];
            h->d_error[j] += *ds * h->k[i]; /* by beta e */
        }
        h->d_q[i] = of_q;
        h->d_k[i] = of_k;
    }
    for (int64_t j = 0; j < width; j++) {
        d_beta += h->d_error[j] * h->error[j];
        h->d_error[j] *= d.beta;
    }
    for (int64_t i = 0; i < a->key_dim; i++) {
        num d_decay = 0;
        for (int64_t j = 0; j < width; j++) {
            const num d_decayed = d_state[i * width + j] - h->k[i] * h->d_error[j];
            h->d_k[i] -= h->decay[i] * before[i * width + j] * h->d_error[j];
            d_decay += d_decayed * before[i * width + j];
            d_state[i * width + j] = d_decayed * h->decay[i];
        }
        h->d_log[i] = d_decay * h->decay[i];
    }
    delta_give_back(h, &d, d_beta);
}

static int64_t delta_thread_work(const apr_grad_call *c)
{
    const apr_delta_args *const a = &c->args->delta;
    return (int64_t)history_numbers(c, a->key_dim * a->value_dim) + 6 * a->key_dim + 2 * a->value_dim;
}

static size_t delta_work(const apr_grad_call *c) { return (size_t)c->n_threads * (size_t)delta_thread_work(c); }

static void delta_run_head(const apr_grad_call *c, int64_t window, int64_t head, int64_t key_head, bool is_forward)
{
    const apr_delta_args *const a = &c->args->delta;
    num *const work = (num *)c->work + apr_thread_number() * delta_thread_work(c);
    delta_head h = {.c = c, .start = window * c->n_positions, .head = head, .key_head = key_head, .writes = is_forward, .q = work};

    h.k = h.q + a->key_dim;
    h.d_q = h.k + a->key_dim;
    h.d_k = h.d_q + a->key_dim;
    h.decay = h.d_k + a->key_dim;
    h.d_log = h.decay + a->key_dim;
    h.error = h.d_log + a->key_dim;
    h.d_error = h.error + a->value_dim;
    state_history states = history_at(c, h.d_error + a->value_dim, a->key_dim * a->value_dim);
    if (!is_forward) run_back(c, &states, &h, delta_step, delta_step_back);
    for (int64_t t = 0; t < c->n_positions && is_forward; t++) delta_step(&h, t, states.state);
}

static void delta_run(const apr_grad_call *c, bool is_forward)
{
    const apr_delta_args *const a = &c->args->delta;
    const double steps = (double)(c->n_rows * a->n_value_heads) * (double)(a->key_dim * a->value_dim);

#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(c, a->n_key_heads, steps))
    for (int64_t key_head = 0; key_head < a->n_key_heads; key_head++)
        for (int64_t window = 0; window < c->n_rows / c->n_positions; window++)
            for (int64_t head = 0; head < a->n_value_heads; head++)
                if ((a->tiled ? head % a->n_key_heads : head / (a->n_value_heads / a->n_key_heads)) == key_head)
                    delta_run_head(c, window, head, key_head, is_forward);
}

static void delta_forward(const apr_grad_call *c) { delta_run(c, true); }
static void delta_backward(const apr_grad_call *c) { delta_run(c, false); }

/* ---- state-space duality: a thread takes a group of heads, which share B and C ---- */

typedef struct ssd_head {
    const apr_grad_call *c;
    int64_t start, head, group;
    bool writes;
} ssd_head;

typedef struct ssd_token {
    int64_t x_at, b_at, c_at, head_at;
    num raw, dt, decay;
} ssd_token;

static ssd_token ssd_token_of(const ssd_head *h, int64_t t)
{
    const apr_ssd_args *const a = &h->c->args->ssd;
    const int64_t n_x = a->n_heads * a->head_dim, row = h->start + t, at = row * (n_x + 2 * a->n_groups * a->state_dim);
    ssd_token s = {.x_at = at + h->head * a->head_dim, .b_at = at + n_x + h->group * a->state_dim, .head_at = row * a->n_heads + h->head};

    s.c_at = s.b_at + a->n_groups * a->state_dim;
    s.raw = ((const num *)h->c->in[1])[s.head_at] + ((const num *)h->c->weight[1])[h->head];
    s.dt = softplus(s.raw);
    s.decay = MATH(exp)(-((const num *)h->c->weight[0])[h->head] * s.dt);
    return s;
}

static void ssd_step(const void *head, int64_t t, num *state)
{
    const ssd_head *const h = head;
    const apr_ssd_args *const a = &h->c->args->ssd;
    const ssd_token s = ssd_token_of(h, t);
    const num *const xbc = h->c->in[0], *const x = xbc + s.x_at, *const b = xbc + s.b_at, *const c = xbc + s.c_at;
    const num skip = ((const num *)h->c->weight[2])[h->head];

    for (int64_t i = 0; i < a->head_dim; i++) {
        num sum = 0;
        for (int64_t j = 0; j < a->state_dim; j++) {
            num *const at = &state[i * a->state_dim + j];
            *at = *at * s.decay + s.dt * x[i] * b[j];
            sum += *at * c[j];
        }
        if (h->writes) ((num *)h->c->out)[s.head_at * a->head_dim + i] = sum + skip * x[i];
    }
}

/* The parts of one token's gradient that all numbers of its head add to. */
typedef struct ssd_sums {
    num dt, decay, skip;
} ssd_sums;

/* Number i of the head: S' = decay S + dt x b^T, out = S' c + skip x. */
static void ssd_back_row(const ssd_head *h, const ssd_token *s, int64_t i, const num *before, num *d_state, ssd_sums *sums)
{
    const apr_ssd_args *const a = &h->c->args->ssd;
    const num *const xbc = h->c->in[0], x = xbc[s->x_at + i], *const b = xbc + s->b_at, *const c = xbc + s->c_at;
    const num d_out = ((const num *)h->c->d_out)[s->head_at * a->head_dim + i];
    num *const d_xbc = h->c->d_in[0], along_b = 0;

    for (int64_t j = 0; j < a->state_dim; j++) {
        const num after = before[j] * s->decay + s->dt * x * b[j];
        d_state[j] += d_out * c[j];
        if (d_xbc != NULL) {
            d_xbc[s->c_at + j] += d_out * after;
            d_xbc[s->b_at + j] += d_state[j] * s->dt * x;
        }
        along_b += d_state[j] * b[j];
        sums->decay += d_state[j] * before[j];
        d_state[j] *= s->decay;
    }
    sums->dt += along_b * x;
    sums->skip += d_out * x;
    if (d_xbc != NULL) d_xbc[s->x_at + i] += along_b * s->dt + d_out * ((const num *)h->c->weight[2])[h->head];
}

static void ssd_step_back(const void *head, int64_t t, const num *before, num *d_state)
{
    const ssd_head *const h = head;
    const apr_grad_call *const c = h->c;
    const apr_ssd_args *const a = &c->args->ssd;
    const ssd_token s = ssd_token_of(h, t);
    ssd_sums sums = {0};

    for (int64_t i = 0; i < a->head_dim; i++) ssd_back_row(h, &s, i, before + i * a->state_dim, d_state + i * a->state_dim, &sums);
    const num rate = ((const num *)c->weight[0])[h->head], d_log = sums.decay * s.decay;
    const num d_raw = (sums.dt - rate * d_log) * softplus_slope(s.raw);
    if (c->d_in[1] != NULL) ((num *)c->d_in[1])[s.head_at] += d_raw;
    if (c->d_weight[0] != NULL) ((num *)c->d_weight[0])[h->head] -= s.dt * d_log;
    if (c->d_weight[1] != NULL) ((num *)c->d_weight[1])[h->head] += d_raw;
    if (c->d_weight[2] != NULL) ((num *)c->d_weight[2])[h->head] += sums.skip;
}

static size_t ssd_work(const apr_grad_call *c)
{
    return (size_t)c->n_threads * history_numbers(c, c->args->ssd.head_dim * c->args->ssd.state_dim);
}

static void ssd_run_head(const apr_grad_call *c, int64_t window, int64_t head, int64_t group, bool is_forward)
{
    const int64_t size = c->args->ssd.head_dim * c->args->ssd.state_dim;
    const ssd_head h = {.c = c, .start = window * c->n_positions, .head = head, .group = group, .writes = is_forward};
    state_history states = history_at(c, (num *)c->work + (size_t)apr_thread_number() * history_numbers(c, size), size);

    if (!is_forward) run_back(c, &states, &h, ssd_step, ssd_step_back);
    for (int64_t t = 0; t < c->n_positions && is_forward; t++) ssd_step(&h, t, states.state);
}

static void ssd_run(const apr_grad_call *c, bool is_forward)
{
    const apr_ssd_args *const a = &c->args->ssd;
    const int64_t per_group = a->n_heads / a->n_groups;
    const double steps = (double)(c->n_rows * a->n_heads) * (double)(a->head_dim * a->state_dim);

#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(c, a->n_groups, steps))
    for (int64_t group = 0; group < a->n_groups; group++)
        for (int64_t window = 0; window < c->n_rows / c->n_positions; window++)
            for (int64_t head = group * per_group; head < (group + 1) * per_group; head++) ssd_run_head(c, window, head, group, is_forward);
}

static void ssd_forward(const apr_grad_call *c) { ssd_run(c, true); }
static void ssd_backward(const apr_grad_call *c) { ssd_run(c, false); }

#endif
