/* op_softcap.c - soft cap: cap * tanh(x / cap). */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the cap", APR_FACT_REAL, offsetof(apr_op_args, softcap.cap)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->softcap.n_tokens = apr_op_memory_rows_of(g, op->out).n;
    args->softcap.x = apr_op_memory_value(g, op->in[0]);
    args->softcap.out = apr_op_memory_value(g, op->out);
    args->softcap.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_softcap = {
    .kind = APR_OP_SOFTCAP,
    .n_inputs = 1,
    .in_place = true,
    .facts = facts,
    .bound = {1e-4, 1e-5, "tanhf to a few units in the last place"},
    .bind = bind,
};
