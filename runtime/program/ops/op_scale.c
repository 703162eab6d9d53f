/* op_scale.c - multiplies by a constant factor and by a scale that grows with the position. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the factor", APR_FACT_REAL, offsetof(apr_op_args, scale.factor)},
    {"the temperature factor", APR_FACT_REAL, offsetof(apr_op_args, scale.warmth)},
    {"the temperature shift", APR_FACT_REAL, offsetof(apr_op_args, scale.shift)},
    {"the temperature period", APR_FACT_REAL, offsetof(apr_op_args, scale.period)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->scale.n_tokens = apr_op_memory_rows_of(g, op->out).n;
    args->scale.position = g->position;
    args->scale.position_at = g->position_at;
    args->scale.per_sequence = g->per_sequence;
    args->scale.x = apr_op_memory_value(g, op->in[0]);
    args->scale.out = apr_op_memory_value(g, op->out);
    args->scale.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_scale = {
    .kind = APR_OP_SCALE,
    .step = APR_BATCH_PER_SEQUENCE,
    .n_inputs = 1,
    .in_place = true,
    .facts = facts,
    .bound = {1e-5, 1e-6, "log1pf to a few units in the last place"},
    .bind = bind,
};
