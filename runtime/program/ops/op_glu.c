/* op_glu.c - silu(gate) * up. */
#include "runtime/program/ops/parts.h"

static void bind(const apr_ground *g, const apr_op *op, apr_op_args *args)
{
    args->glu = (apr_glu_args){.n_tokens = g->n_tokens,
                               .width = g->program->values[op->out].width,
                               .gate = apr_ground_value(g, op->in[0]),
                               .up = apr_ground_value(g, op->in[1]),
                               .out = apr_ground_value(g, op->out),
                               .n_threads = g->work.n_threads};
}

static void describe(const apr_op_args *args, char *text, size_t n) { apr_describe_floats(APR_OP_GLU, args->glu.n_tokens, text, n); }

const apr_op_card apr_card_glu = {
    .kind = APR_OP_GLU,
    .n_inputs = 2, /* gate, up */
    .in_place = true,
    .bound = {1e-4, 1e-5, "expf to a few units in the last place"},
    .bind = bind,
    .describe = describe,
};
