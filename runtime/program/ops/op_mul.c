/* op_mul.c - the product of two values, or of a value and a vector of weights. */
#include "runtime/program/op_spec.h"

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->mul.n_tokens = g->n_tokens;
    args->mul.x = apr_op_memory_value(g, op->in[0]);
    args->mul.y = args->mul.y_is_vector ? apr_op_memory_vector(g, op->weight[0]) : apr_op_memory_value(g, op->in[1]);
    args->mul.out = apr_op_memory_value(g, op->out);
    args->mul.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_mul = {
    .kind = APR_OP_MUL,
    .n_inputs = 2,
    .in_place = true,
    .weights = {{"factors", APR_USE_FLOAT, .optional = true}},
    .bound = {0.0, 0.0, "one rounded product"},
    .bind = bind,
};
