/* linear.h - a matrix for all rows, or one for each head: y = x W^T + b;  dx = dy W,  dW = dy^T x,  db = sum of dy. */
#ifndef APR_KERNELS_HOST_GRAD_LINEAR_H
#define APR_KERNELS_HOST_GRAD_LINEAR_H

#include "kernels/host/grad/products.h"

/* The matrix of a head, and its inputs and outputs; with one matrix for all, `n` is 1. */
typedef struct linear_part {
    int64_t first, x_row, out_row, x_at, out_at, w_row;
    bool transposed; /* rows of the weight are inputs */
} linear_part;

static linear_part linear_part_of(const apr_linear_args *a, int64_t head)
{
    if (a->heads.n == 0) return (linear_part){.x_row = a->n_in, .out_row = a->n_out, .w_row = a->n_in};
    const int64_t w_row = a->heads.transposed ? a->n_out : a->n_in;
    return (linear_part){.first = apr_linear_first_row(a, head) * w_row,
                         .x_row = a->heads.n * a->n_in,
                         .out_row = a->heads.n * a->n_out,
                         .x_at = head * a->n_in,
                         .out_at = head * a->n_out,
                         .w_row = w_row,
                         .transposed = a->heads.transposed};
}

/* The weight as [n_out, n_in]. */
static matrix linear_weight(const linear_part *p, const num *weight)
{
    return p->transposed ? transposed(weight + p->first, p->w_row) : rows_of(weight + p->first, p->w_row);
}

static matrix turned(matrix m) { return (matrix){m.at, m.column, m.row}; }

static int64_t linear_parts(const apr_linear_args *a) { return a->heads.n > 0 ? a->heads.n : 1; }

static void linear_forward(const apr_grad_call *c)
{
    const apr_linear_args *const a = &c->args->linear;

    set_rows(c->out, c->n_rows, c->width_out, c->weight[1]);
    for (int64_t h = 0; h < linear_parts(a); h++) {
        const linear_part p = linear_part_of(a, h);
        const product y = {.a = rows_of((const num *)c->in[0] + p.x_at, p.x_row),
                           .b = turned(linear_weight(&p, c->weight[0])),
                           .c = (num *)c->out + p.out_at,
                           .c_row = p.out_row,
                           .m = c->n_rows,
                           .n = a->n_out,
                           .k = a->n_in};
        multiply(c, &y);
    }
}

static void linear_backward_inputs(const apr_grad_call *c, const linear_part *p)
{
    const apr_linear_args *const a = &c->args->linear;
    const product dx = {.a = rows_of((const num *)c->d_out + p->out_at, p->out_row),
                        .b = linear_weight(p, c->weight[0]),
                        .c = (num *)c->d_in[0] + p->x_at,
                        .c_row = p->x_row,
                        .m = c->n_rows,
                        .n = a->n_in,
                        .k = a->n_out};
    multiply(c, &dx);
}

static void linear_backward_weight(const apr_grad_call *c, const linear_part *p)
{
    const apr_linear_args *const a = &c->args->linear;
    const num *const x = (const num *)c->in[0] + p->x_at, *const dy = (const num *)c->d_out + p->out_at;
    const bool t = p->transposed;
    const product dw = {.a = t ? transposed(x, p->x_row) : transposed(dy, p->out_row),
                        .b = t ? rows_of(dy, p->out_row) : rows_of(x, p->x_row),
                        .c = (num *)c->d_weight[0] + p->first,
                        .c_row = p->w_row,
                        .m = t ? a->n_in : a->n_out,
                        .n = t ? a->n_out : a->n_in,
                        .k = c->n_rows};
    multiply(c, &dw);
}

static void linear_backward(const apr_grad_call *c)
{
    for (int64_t h = 0; h < linear_parts(&c->args->linear); h++) {
        const linear_part p = linear_part_of(&c->args->linear, h);
        if (c->d_in[0] != NULL) linear_backward_inputs(c, &p);
        if (c->d_weight[0] != NULL) linear_backward_weight(c, &p);
    }
    if (c->d_weight[1] != NULL) add_rows(c->d_out, c->n_rows, c->width_out, c->width_out, c->d_weight[1]);
}

#endif
