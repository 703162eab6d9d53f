/* op_gauss_topk.c - Gaussian top-k: subtracts a quantile of the row and keeps what is positive. */
#include "runtime/program/op_spec.h"

static const apr_op_fact facts[] = {
    {"the quantile", APR_FACT_REAL, offsetof(apr_op_args, gauss_topk.factor)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->gauss_topk.n_tokens = g->n_tokens;
    args->gauss_topk.x = apr_op_memory_value(g, op->in[0]);
    args->gauss_topk.out = apr_op_memory_value(g, op->out);
    args->gauss_topk.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_gauss_topk = {
    .kind = APR_OP_GAUSS_TOPK,
    .n_inputs = 1,
    .in_place = true,
    .facts = facts,
    .bound = {1e-4, 1e-5, "the mean and the deviation are sums in another order"},
    .bind = bind,
};
