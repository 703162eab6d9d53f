/* op_altup.c - AltUp: mixes the streams of hidden states before and after a layer. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the number of streams", APR_FACT_WHOLE, offsetof(apr_op_args, altup.n_streams)},
    {"the first stream that changes", APR_FACT_WHOLE, offsetof(apr_op_args, altup.first)},
    {"the stream that is computed", APR_FACT_WHOLE, offsetof(apr_op_args, altup.minus)},
    {"the scale of the router", APR_FACT_REAL, offsetof(apr_op_args, altup.scale)},
    {"the offset of the coefficients", APR_FACT_REAL, offsetof(apr_op_args, altup.offset)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->altup.n_tokens = g->n_tokens;
    args->altup.x = apr_op_memory_value(g, op->in[0]);
    args->altup.y = apr_op_memory_value(g, op->in[1]);
    args->altup.routed = op->in[2] >= 0 ? apr_op_memory_value(g, op->in[2]) : NULL;
    args->altup.coefs = apr_op_memory_vector(g, op->weight[0]);
    args->altup.out = apr_op_memory_value(g, op->out);
    args->altup.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_altup = {
    .kind = APR_OP_ALTUP,
    .n_inputs = 3,
    .weights = {{"coefficients", APR_USE_FLOAT, .optional = true}},
    .facts = facts,
    .bound = {1e-4, 1e-5, "tanhf to a few units in the last place, and short sums"},
    .bind = bind,
};
