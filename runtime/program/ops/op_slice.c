/* op_slice.c - a range of every head. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the number of heads", APR_FACT_WHOLE, offsetof(apr_op_args, slice.n_heads)},
    {"the size of a head", APR_FACT_WHOLE, offsetof(apr_op_args, slice.head_dim)},
    {"the start of the range", APR_FACT_WHOLE, offsetof(apr_op_args, slice.start)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->slice.n_tokens = g->n_tokens;
    args->slice.x = apr_op_memory_value(g, op->in[0]);
    args->slice.out = apr_op_memory_value(g, op->out);
}

const apr_op_spec apr_spec_slice = {
    .kind = APR_OP_SLICE,
    .n_inputs = 1,
    .facts = facts,
    .bound = {0.0, 0.0, "a copy"},
    .bind = bind,
};
