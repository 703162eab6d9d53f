/* op_rope.c - pairs of numbers in each head turned by the position's angles. */
#include "runtime/program/ops/parts.h"

static void bind(const apr_ground *g, const apr_op *op, apr_op_args *args)
{
    args->rope = (apr_rope_args){.n_tokens = g->n_tokens,
                                 .n_heads = op->n_heads,
                                 .head_dim = op->head_dim,
                                 .n_freqs = g->program->ropes[op->rope].n_freqs,
                                 .x = apr_ground_value(g, op->in[0]),
                                 .angles = apr_ground_value(g, op->in[1]),
                                 .out = apr_ground_value(g, op->out)};
}

static void describe(const apr_op_args *args, char *text, size_t n) { apr_describe_floats(APR_OP_ROPE, args->rope.n_tokens, text, n); }

const apr_op_card apr_card_rope = {
    .kind = APR_OP_ROPE,
    .n_inputs = 2, /* the heads, the angles */
    .in_place = true,
    .has_rope = true,
    .bound = {1e-5, 1e-6, "two products and a sum, fused or not"},
    .bind = bind,
    .describe = describe,
};
