/* op_norm.c - normalizes chunks of each row, with a weight and a bias. */
#include "runtime/program/op_spec.h"

enum { GAIN, BIAS };

static const apr_op_fact facts[] = {
    {"the kind of norm", APR_FACT_CHOICE, offsetof(apr_op_args, norm.kind)},
    {"epsilon", APR_FACT_REAL, offsetof(apr_op_args, norm.eps)},
    {"the offset added to the gain", APR_FACT_REAL, offsetof(apr_op_args, norm.offset)},
    {"the width of a chunk", APR_FACT_WHOLE, offsetof(apr_op_args, norm.chunk)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->norm.n_tokens = g->n_tokens;
    args->norm.x = apr_op_memory_value(g, op->in[0]);
    args->norm.weight = apr_op_memory_vector(g, op->weight[GAIN]);
    args->norm.bias = apr_op_memory_vector(g, op->weight[BIAS]);
    args->norm.out = apr_op_memory_value(g, op->out);
    args->norm.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_norm = {
    .kind = APR_OP_NORM,
    .n_inputs = 1,
    .in_place = true,
    .weights = {[GAIN] = {"gain", APR_USE_FLOAT, .optional = true}, [BIAS] = {"bias", APR_USE_FLOAT, .optional = true}},
    .facts = facts,
    .bound = {1e-4, 1e-5, "a float32 sum of squares in another order"},
    .bind = bind,
};
