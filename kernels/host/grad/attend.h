/* attend.h - causal attention of whole windows. A thread takes a key/value head of a window with all its query heads, so that what it
 * adds to is its own; it passes over some query rows at a time.
 *
 *     S = cap(scale * Q K^T),  P = exp(S) / (sum of exp(S) + exp(sink)),  O = P V
 *     dV += P^T dO,  dP = dO V^T,  dS = P (dP - rowsum(dO O)),  d sink = -sum of P_sink rowsum(dO O)
 *     dQ += dR K,  dK += dR^T Q,  dR = dS * scale * cap'(S) */
#ifndef APR_KERNELS_HOST_GRAD_ATTEND_H
#define APR_KERNELS_HOST_GRAD_ATTEND_H

#include "kernels/host/grad/products.h"

enum { ATTEND_ROWS = 64 };

/* Query rows [row, row + n) of a head in a window, and the keys from `first` on that some of them attend to. */
typedef struct attend_rows {
    const apr_grad_call *c;
    int64_t window, head, kv_head, row, n, first, n_keys;
    num *weights, *slopes, *d_weights; /* [n, n_keys] each */
    num *tiles;
} attend_rows;

static size_t attend_work(const apr_grad_call *c)
{
    const size_t n_threads = (size_t)c->n_threads, n_sinks = (size_t)(c->n_rows / c->n_positions * c->args->attend.n_heads);
    return n_threads * 3 * ATTEND_ROWS * (size_t)c->n_positions + n_sinks;
}

static int64_t query_at(const attend_rows *r, int64_t width)
{
    return ((r->window * r->c->n_positions + r->row) * r->c->args->attend.n_heads + r->head) * width;
}

static int64_t key_at(const attend_rows *r, int64_t width)
{
    return ((r->window * r->c->n_positions + r->first) * r->c->args->attend.n_kv_heads + r->kv_head) * width;
}

static matrix queries(const attend_rows *r)
{
    const apr_attend_args *const a = &r->c->args->attend;
    return rows_of((const num *)r->c->in[0] + query_at(r, a->key_dim), a->n_heads * a->key_dim);
}

static matrix keys(const attend_rows *r)
{
    const apr_attend_args *const a = &r->c->args->attend;
    return rows_of((const num *)r->c->in[1] + key_at(r, a->key_dim), a->n_kv_heads * a->key_dim);
}

/* Values are in their own rows, or the first numbers of the keys. */
static int64_t value_width(const attend_rows *r) { return r->c->in[2] != NULL ? r->c->args->attend.value_dim : r->c->args->attend.key_dim; }

static matrix values(const attend_rows *r)
{
    const num *const at = r->c->in[2] != NULL ? r->c->in[2] : r->c->in[1];
    return rows_of(at + key_at(r, value_width(r)), r->c->args->attend.n_kv_heads * value_width(r));
}

static matrix outputs(const attend_rows *r, const void *of)
{
    const apr_attend_args *const a = &r->c->args->attend;
    return rows_of((const num *)of + query_at(r, a->value_dim), a->n_heads * a->value_dim);
}

static num sink_of(const attend_rows *r) { return ((const num *)r->c->weight[0])[r->head]; }

/* Caps and masks the scores of row i, makes weights of them, and keeps the derivatives of the scores. Returns the sink's weight. */
static num weigh_row(const attend_rows *r, int64_t i)
{
    const apr_attend_args *const a = &r->c->args->attend;
    const int64_t own = r->row + i, begin = apr_attend_first(a, own) - r->first, end = own - r->first + 1;
    num *const w = r->weights + i * r->n_keys, *const slope = r->slopes + i * r->n_keys;
    const bool has_sink = r->c->weight[0] != NULL;
    num most = has_sink ? sink_of(r) : -INFINITY;

    for (int64_t k = 0; k < r->n_keys; k++) slope[k] = (num)a->scale;
    for (int64_t k = begin; k < end; k++) {
        const num capped = a->softcap > 0.0f ? MATH(tanh)(w[k] * (num)a->scale / (num)a->softcap) : 0;
        slope[k] *= 1 - capped * capped;
        w[k] = a->softcap > 0.0f ? capped * (num)a->softcap : w[k] * (num)a->scale;
        most = w[k] > most ? w[k] : most;
    }
    const num of_sink = has_sink ? MATH(exp)(sink_of(r) - most) : 0;
    num sum = of_sink;
    for (int64_t k = begin; k < end; k++) sum += w[k] = MATH(exp)(w[k] - most);
    for (int64_t k = 0; k < r->n_keys; k++) w[k] = k >= begin && k < end ? w[k] / sum : 0;
    return of_sink / sum;
}

/* The weights of all rows; sinks: NULL, or gets those of the sink. */
static void weigh(const attend_rows *r, num *sinks)
{
    const product scores = {.a = queries(r),
                            .b = (matrix){keys(r).at, 1, keys(r).row},
                            .c = r->weights,
                            .c_row = r->n_keys,
                            .m = r->n,
                            .n = r->n_keys,
                            .k = r->c->args->attend.key_dim};
    memset(r->weights, 0, (size_t)(r->n * r->n_keys) * sizeof(num));
    multiply_here(&scores, r->tiles);
    for (int64_t i = 0; i < r->n; i++) {
        const num of_sink = weigh_row(r, i);
        if (sinks != NULL) sinks[i] = of_sink;
    }
}

static void attend_forward_rows(const attend_rows *r)
{
    const matrix out = outputs(r, r->c->out);
    const product o = {.a = rows_of(r->weights, r->n_keys),
                       .b = values(r),
                       .c = (num *)r->c->out + query_at(r, r->c->args->attend.value_dim),
                       .c_row = out.row,
                       .m = r->n,
                       .n = r->c->args->attend.value_dim,
                       .k = r->n_keys};
    weigh(r, NULL);
    for (int64_t i = 0; i < r->n; i++) memset(o.c + i * o.c_row, 0, (size_t)o.n * sizeof(num));
    multiply_here(&o, r->tiles);
}

static void add_values_gradient(const attend_rows *r)
{
    num *const to = r->c->in[2] != NULL ? r->c->d_in[2] : r->c->d_in[1];
    const product dv = {.a = transposed(r->weights, r->n_keys),
                        .b = outputs(r, r->c->d_out),
                        .c = to != NULL ? to + key_at(r, value_width(r)) : NULL,
                        .c_row = values(r).row,
                        .m = r->n_keys,
                        .n = r->c->args->attend.value_dim,
                        .k = r->n};
    if (to != NULL) multiply_here(&dv, r->tiles);
}

/* d_weights becomes the gradient by the products q . k. */
static void backward_scores(const attend_rows *r, const num *sinks, num *d_sink)
{
    const matrix d_out = outputs(r, r->c->d_out), out = outputs(r, r->c->out);
    const product dp = {.a = d_out,
                        .b = (matrix){values(r).at, 1, values(r).row},
                        .c = r->d_weights,
                        .c_row = r->n_keys,
                        .m = r->n,
                        .n = r->n_keys,
                        .k = r->c->args->attend.value_dim};

    memset(r->d_weights, 0, (size_t)(r->n * r->n_keys) * sizeof(num));
    multiply_here(&dp, r->tiles);
    for (int64_t i = 0; i < r->n; i++) {
        num along = 0;
        for (int64_t d = 0; d < dp.k; d++) along += d_out.at[i * d_out.row + d] * out.at[i * out.row + d];
        for (int64_t k = i * r->n_keys; k < (i + 1) * r->n_keys; k++)
            r->d_weights[k] = r->weights[k] * (r->d_weights[k] - along) * r->slopes[k];
        *d_sink -= sinks[i] * along;
    }
}

static void add_queries_and_keys_gradient(const attend_rows *r)
{
    const apr_attend_args *const a = &r->c->args->attend;
    num *const dq = r->c->d_in[0], *const dk = r->c->d_in[1];
    const product by_query = {.a = rows_of(r->d_weights, r->n_keys),
                              .b = keys(r),
                              .c = dq != NULL ? dq + query_at(r, a->key_dim) : NULL,
                              .c_row = queries(r).row,
                              .m = r->n,
                              .n = a->key_dim,
                              .k = r->n_keys};
    const product by_key = {.a = transposed(r->d_weights, r->n_keys),
                            .b = queries(r),
                            .c = dk != NULL ? dk + key_at(r, a->key_dim) : NULL,
                            .c_row = keys(r).row,
                            .m = r->n_keys,
                            .n = a->key_dim,
                            .k = r->n};
    if (dq != NULL) multiply_here(&by_query, r->tiles);
    if (dk != NULL) multiply_here(&by_key, r->tiles);
}

static void attend_backward_rows(const attend_rows *r, num *d_sink)
{
    num sinks[ATTEND_ROWS];
    weigh(r, sinks);
    add_values_gradient(r);
    backward_scores(r, sinks, d_sink);
    add_queries_and_keys_gradient(r);
}

/* A window's part that belongs to one key/value head. d_sinks: NULL in a forward pass, or the window's [n_heads]. */
static void attend_part(const apr_grad_call *c, int64_t window, int64_t kv_head, num *d_sinks)
{
    const apr_attend_args *const a = &c->args->attend;
    const int64_t group = a->n_heads / a->n_kv_heads;
    num *const work = (num *)c->work + (size_t)apr_thread_number() * 3 * ATTEND_ROWS * (size_t)c->n_positions;
    attend_rows r = {.c = c, .window = window, .kv_head = kv_head, .weights = work, .tiles = tiles_of_thread(c)};

    r.slopes = work + ATTEND_ROWS * c->n_positions;
    r.d_weights = r.slopes + ATTEND_ROWS * c->n_positions;
    for (r.head = kv_head * group; r.head < (kv_head + 1) * group; r.head++)
        for (r.row = 0; r.row < c->n_positions; r.row += ATTEND_ROWS) {
            r.n = c->n_positions - r.row < ATTEND_ROWS ? c->n_positions - r.row : ATTEND_ROWS;
            r.first = apr_attend_first(a, r.row);
            r.n_keys = r.row + r.n - r.first;
            if (d_sinks == NULL) attend_forward_rows(&r);
            else attend_backward_rows(&r, &d_sinks[r.head]);
        }
}

static void attend_parts(const apr_grad_call *c, num *d_sinks)
{
    const apr_attend_args *const a = &c->args->attend;
    const int64_t n_parts = c->n_rows / c->n_positions * a->n_kv_heads;
    const double steps = (double)c->n_rows * (double)c->n_positions * (double)(a->n_heads * a->key_dim);

#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(c, n_parts, steps))
    for (int64_t p = 0; p < n_parts; p++) {
        const int64_t window = p / a->n_kv_heads;
        attend_part(c, window, p % a->n_kv_heads, d_sinks != NULL ? d_sinks + window * a->n_heads : NULL);
    }
}

static void attend_forward(const apr_grad_call *c) { attend_parts(c, NULL); }

static void attend_backward(const apr_grad_call *c)
{
    const int64_t n_heads = c->args->attend.n_heads, n_windows = c->n_rows / c->n_positions;
    num *const d_sinks = (num *)c->work + (size_t)c->n_threads * 3 * ATTEND_ROWS * (size_t)c->n_positions;

    memset(d_sinks, 0, (size_t)(n_windows * n_heads) * sizeof(num));
    attend_parts(c, d_sinks);
    if (c->d_weight[0] != NULL) add_rows(d_sinks, n_windows, n_heads, n_heads, c->d_weight[0]);
}

#endif
