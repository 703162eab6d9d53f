/* op_rmsnorm.c - chunks of each row divided by their root mean square. */
#include "runtime/program/ops/parts.h"

static void bind(const apr_ground *g, const apr_op *op, apr_op_args *args)
{
    args->rmsnorm = (apr_rmsnorm_args){.n_tokens = g->n_tokens,
                                       .width = g->program->values[op->out].width,
                                       .chunk = op->chunk,
                                       .eps = op->eps,
                                       .x = apr_ground_value(g, op->in[0]),
                                       .weight = apr_ground_vector(g, op->weight[0]),
                                       .out = apr_ground_value(g, op->out)};
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    apr_describe_floats(APR_OP_RMSNORM, args->rmsnorm.n_tokens, text, n);
}

const apr_op_card apr_card_rmsnorm = {
    .kind = APR_OP_RMSNORM,
    .n_inputs = 1,
    .weights = {{"gain", APR_USE_FLOAT}},
    .bound = {1e-4, 1e-5, "a float32 sum of squares in another order"},
    .bind = bind,
    .describe = describe,
};
