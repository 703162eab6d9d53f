/* streams.h - Gemma 3n's operations: streams of hidden states (AltUp), rows with the magnitude of others, Gaussian top-k. */
#ifndef APR_KERNELS_HOST_GRAD_STREAMS_H
#define APR_KERNELS_HOST_GRAD_STREAMS_H

#include "kernels/host/grad/numbers.h"

/* ---- AltUp ---- */

/* One token: y[j] - x[minus] is what a coefficient multiplies. */
typedef struct altup_row {
    const apr_altup_args *a;
    const num *x, *y, *routed, *coefs; /* routed NULL: all coefficients are the offset */
} altup_row;

static altup_row altup_row_of(const apr_grad_call *c, int64_t r)
{
    const apr_altup_args *const a = &c->args->altup;
    altup_row row = {.a = a, .coefs = c->weight[0]};
    row.x = (const num *)c->in[0] + r * a->n_streams * a->width;
    row.y = (const num *)c->in[1] + r * a->n_y * a->width;
    row.routed = c->in[2] != NULL ? (const num *)c->in[2] + r * a->n_streams : NULL;
    return row;
}

static num altup_gate(const altup_row *row, int64_t k) { return MATH(tanh)((num)row->a->scale * row->routed[k]); }

static num altup_coef(const altup_row *row, int64_t ij)
{
    num sum = (num)row->a->offset;
    for (int64_t k = 0; row->routed != NULL && k < row->a->n_streams; k++)
        sum += row->coefs[ij * row->a->n_streams + k] * altup_gate(row, k);
    return sum;
}

static num altup_term(const altup_row *row, int64_t j, int64_t d)
{
    const int64_t width = row->a->width;
    return row->y[j * width + d] - (row->a->minus >= 0 ? row->x[row->a->minus * width + d] : 0);
}

static void altup_forward(const apr_grad_call *c)
{
    const apr_altup_args *const a = &c->args->altup;
    const double steps = (double)(c->n_rows * a->n_streams) * (double)(a->n_y * a->width);

#pragma omp parallel for num_threads(threads_for(c, c->n_rows, 2.0 * steps))
    for (int64_t r = 0; r < c->n_rows; r++) {
        const altup_row row = altup_row_of(c, r);
        num *const out = (num *)c->out + r * a->n_streams * a->width;
        memcpy(out, row.x, (size_t)(a->n_streams * a->width) * sizeof *out);
        for (int64_t i = a->first; i < a->n_streams; i++)
            for (int64_t j = 0; j < a->n_y; j++) {
                const num coef = altup_coef(&row, i * a->n_y + j);
                for (int64_t d = 0; d < a->width; d++) out[i * a->width + d] += coef * altup_term(&row, j, d);
            }
    }
}

/* The loss by coefficient ij is `d`: those by the weights and by what they multiply. */
static void altup_backward_coef(const apr_grad_call *c, const altup_row *row, int64_t r, int64_t ij, num d)
{
    const int64_t n = row->a->n_streams;
    num *const d_routed = c->d_in[2], *const d_coefs = c->d_weight[0];

    for (int64_t k = 0; row->routed != NULL && k < n; k++) {
        const num gate = altup_gate(row, k);
        if (d_coefs != NULL) d_coefs[ij * n + k] += d * gate;
        if (d_routed != NULL) d_routed[r * n + k] += d * row->coefs[ij * n + k] * (num)row->a->scale * (1 - gate * gate);
    }
}

static void altup_backward_row(const apr_grad_call *c, int64_t r)
{
    const altup_row row = altup_row_of(c, r);
    const apr_altup_args *const a = row.a;
    const int64_t width = a->width, at_x = r * a->n_streams * width, at_y = r * a->n_y * width;
    const num *const d_out = (const num *)c->d_out + at_x;
    num *const d_x = c->d_in[0], *const d_y = c->d_in[1];

    for (int64_t i = 0; i < a->n_streams * width && d_x != NULL; i++) d_x[at_x + i] += d_out[i];
    for (int64_t i = a->first; i < a->n_streams; i++)
        for (int64_t j = 0; j < a->n_y; j++) {
            const num coef = altup_coef(&row, i * a->n_y + j);
            num along = 0;
            for (int64_t d = 0; d < width; d++) {
                const num g = d_out[i * width + d];
                along += g * altup_term(&row, j, d);
                if (d_y != NULL) d_y[at_y + j * width + d] += coef * g;
                if (d_x != NULL && a->minus >= 0) d_x[at_x + a->minus * width + d] -= coef * g;
            }
            altup_backward_coef(c, &row, r, i * a->n_y + j, along);
        }
}

static void altup_backward(const apr_grad_call *c)
{
    for (int64_t r = 0; r < c->n_rows; r++) altup_backward_row(c, r);
}

/* ---- magnitudes ---- */

static num mean_square(const num *x, num mean, int64_t n)
{
    num sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum / (num)n;
}

static void rescale_forward(const apr_grad_call *c)
{
    const apr_rescale_args *const a = &c->args->rescale;

#pragma omp parallel for num_threads(threads_for(c, c->n_rows, 4.0 * (double)(c->n_rows * a->width)))
    for (int64_t r = 0; r < c->n_rows; r++) {
        const num *const x = (const num *)c->in[0] + r * a->width, *const like = (const num *)c->in[1] + r * a->width;
        const num square = mean_square(x, 0, a->width), floor = (num)a->floor;
        const num factor = MATH(sqrt)(mean_square(like, 0, a->width) / (square > floor ? square : floor));
        for (int64_t i = 0; i < a->width; i++) ((num *)c->out)[r * a->width + i] = x[i] * factor;
    }
}

/* With out = x a / b: d like = (d . x) / b * like / (n a);  d x = d a / b - (d . x) a / b^3 * x / n, the last where b is x's. */
static void rescale_backward_row(const apr_grad_call *c, int64_t r)
{
    const int64_t n = c->args->rescale.width, at = r * n;
    const num *const x = (const num *)c->in[0] + at, *const like = (const num *)c->in[1] + at, *const d = (const num *)c->d_out + at;
    const num own = mean_square(x, 0, n), floor = (num)c->args->rescale.floor, square = own > floor ? own : floor;
    const num a = MATH(sqrt)(mean_square(like, 0, n)), b = MATH(sqrt)(square);
    num *const d_x = c->d_in[0], *const d_like = c->d_in[1], along = 0;

    for (int64_t i = 0; i < n; i++) along += d[i] * x[i];
    for (int64_t i = 0; i < n; i++) {
        if (d_like != NULL && a > 0) d_like[at + i] += along / b * like[i] / ((num)n * a);
        if (d_x != NULL) d_x[at + i] += d[i] * a / b - (own > floor ? along * a / (b * square) * x[i] / (num)n : 0);
    }
}

static void rescale_backward(const apr_grad_call *c)
{
    for (int64_t r = 0; r < c->n_rows; r++) rescale_backward_row(c, r);
}

/* ---- Gaussian top-k ---- */

static num mean_of(const num *x, int64_t n)
{
    num sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (num)n;
}

static void gauss_topk_forward(const apr_grad_call *c)
{
    const apr_gauss_topk_args *const a = &c->args->gauss_topk;

#pragma omp parallel for num_threads(threads_for(c, c->n_rows, 4.0 * (double)(c->n_rows * a->width)))
    for (int64_t r = 0; r < c->n_rows; r++) {
        const num *const x = (const num *)c->in[0] + r * a->width;
        const num mean = mean_of(x, a->width), least = mean + (num)a->factor * MATH(sqrt)(mean_square(x, mean, a->width));
        for (int64_t i = 0; i < a->width; i++) ((num *)c->out)[r * a->width + i] = x[i] > least ? x[i] - least : 0;
    }
}

/* What is kept has the gradient of the output; the quantile has minus the sum of these. */
static void gauss_topk_backward(const apr_grad_call *c)
{
    const int64_t n = c->args->gauss_topk.width;

    for (int64_t at = 0; at < c->n_rows * n && c->d_in[0] != NULL; at += n) {
        const num *const x = (const num *)c->in[0] + at, *const out = (const num *)c->out + at, *const d = (const num *)c->d_out + at;
        num *const d_x = (num *)c->d_in[0] + at, sum = 0;
        const num mean = mean_of(x, n), deviation = MATH(sqrt)(mean_square(x, mean, n));
        for (int64_t i = 0; i < n; i++) sum += out[i] > 0 ? d[i] : 0;
        for (int64_t i = 0; i < n; i++) {
            const num slope = deviation > 0 ? (num)c->args->gauss_topk.factor * (x[i] - mean) / deviation : 0;
            d_x[i] += (out[i] > 0 ? d[i] : 0) - sum * (1 + slope) / (num)n;
        }
    }
}

#endif
