/* op_add.c - the sum of two values. */
#include "runtime/program/op_spec.h"

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->add.n_tokens = g->n_tokens;
    args->add.a = apr_op_memory_value(g, op->in[0]);
    args->add.b = apr_op_memory_value(g, op->in[1]);
    args->add.out = apr_op_memory_value(g, op->out);
    args->add.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_add = {
    .kind = APR_OP_ADD,
    .n_inputs = 2,
    .in_place = true,
    .bound = {0.0, 0.0, "one rounded sum"},
    .bind = bind,
};
