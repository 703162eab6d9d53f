/* op_rescale.c - rows with the magnitude of other rows. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the least mean square", APR_FACT_REAL, offsetof(apr_op_args, rescale.floor)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->rescale.n_tokens = g->n_tokens;
    args->rescale.x = apr_op_memory_value(g, op->in[0]);
    args->rescale.like = apr_op_memory_value(g, op->in[1]);
    args->rescale.out = apr_op_memory_value(g, op->out);
    args->rescale.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_rescale = {
    .kind = APR_OP_RESCALE,
    .n_inputs = 2,
    .in_place = true,
    .facts = facts,
    .bound = {1e-4, 1e-5, "sums of squares in another order"},
    .bind = bind,
};
