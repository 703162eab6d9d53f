/* op_glu.c - a gated linear unit, or an activation alone. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the activation", APR_FACT_CHOICE, offsetof(apr_op_args, glu.shape.activation)},
    {"the limit", APR_FACT_REAL, offsetof(apr_op_args, glu.shape.limit)},
    {"alpha", APR_FACT_REAL, offsetof(apr_op_args, glu.shape.alpha)},
    {"the offset added to up", APR_FACT_REAL, offsetof(apr_op_args, glu.shape.up_offset)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->glu.n_tokens = g->n_tokens;
    args->glu.gate = apr_op_memory_value(g, op->in[0]);
    args->glu.up = op->in[1] >= 0 ? apr_op_memory_value(g, op->in[1]) : NULL;
    args->glu.out = apr_op_memory_value(g, op->out);
    args->glu.n_threads = g->work.n_threads;
    args->glu.work = g->work;
}

const apr_op_spec apr_spec_glu = {
    .kind = APR_OP_GLU,
    .n_inputs = 2,
    .in_place = true,
    .facts = facts,
    .bound = {1e-4, 1e-5, "expf to a few units in the last place"},
    .bind = bind,
};
