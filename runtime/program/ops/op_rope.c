/* op_rope.c - rotates pairs of numbers in each head by the angles of the position. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the number of heads", APR_FACT_WHOLE, offsetof(apr_op_args, rope.n_heads)},
    {"the size of a head", APR_FACT_WHOLE, offsetof(apr_op_args, rope.head_dim)},
    {"the first rotated number of a head", APR_FACT_WHOLE, offsetof(apr_op_args, rope.start)},
    {"which numbers form a rotary pair", APR_FACT_CHOICE, offsetof(apr_op_args, rope.mode)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->rope.n_tokens = g->n_tokens;
    args->rope.n_freqs = g->program->ropes[op->rope].n_freqs;
    args->rope.x = apr_op_memory_value(g, op->in[0]);
    args->rope.angles = apr_op_memory_value(g, op->in[1]);
    args->rope.out = apr_op_memory_value(g, op->out);
    args->rope.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_rope = {
    .kind = APR_OP_ROPE,
    .n_inputs = 2,
    .in_place = true,
    .has_rope = true,
    .facts = facts,
    .bound = {1e-5, 1e-6, "two products and a sum, fused or not"},
    .bind = bind,
};
