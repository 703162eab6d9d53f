/* op_toy.c - numbers kept between -1000 and 1000. */
#include "runtime/program/op_spec.h"

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->toy = (apr_toy_args){.n_tokens = g->n_tokens,
                               .width = g->program->values[op->out].width,
                               .x = apr_op_memory_value(g, op->in[0]),
                               .out = apr_op_memory_value(g, op->out)};
}

const apr_op_spec apr_spec_toy = {
    .kind = APR_OP_TOY,
    .n_inputs = 1,
    .in_place = true,
    .bound = {0.0, 0.0, "comparisons"},
    .bind = bind,
};
