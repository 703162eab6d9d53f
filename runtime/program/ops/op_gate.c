/* op_gate.c - multiplies heads, rows or numbers by an activation of a gate. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the activation", APR_FACT_CHOICE, offsetof(apr_op_args, gate.activation)},
    {"the number of gates", APR_FACT_WHOLE, offsetof(apr_op_args, gate.n_heads)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->gate.n_tokens = g->n_tokens;
    args->gate.x = apr_op_memory_value(g, op->in[0]);
    args->gate.gate = apr_op_memory_value(g, op->in[1]);
    args->gate.out = apr_op_memory_value(g, op->out);
    args->gate.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_gate = {
    .kind = APR_OP_GATE,
    .n_inputs = 2,
    .in_place = true,
    .facts = facts,
    .bound = {1e-4, 1e-5, "expf to a few units in the last place"},
    .bind = bind,
};
