/* op_join.c - concatenates the heads of two values. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the number of heads", APR_FACT_WHOLE, offsetof(apr_op_args, join.n_heads)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->join.n_tokens = g->n_tokens;
    args->join.a = apr_op_memory_value(g, op->in[0]);
    args->join.b = apr_op_memory_value(g, op->in[1]);
    args->join.out = apr_op_memory_value(g, op->out);
}

const apr_op_spec apr_spec_join = {
    .kind = APR_OP_JOIN,
    .n_inputs = 2,
    .facts = facts,
    .bound = {0.0, 0.0, "a copy"},
    .bind = bind,
};
