/* op_ssd.c - state-space duality (Mamba 2): a state matrix per head, updated and read. */
#include "runtime/program/op_spec.h"

enum { RATE, DT_BIAS, SKIP };

static const apr_op_fact facts[] = {
    {"the number of heads", APR_FACT_WHOLE, offsetof(apr_op_args, ssd.n_heads)},
    {"the size of a head", APR_FACT_WHOLE, offsetof(apr_op_args, ssd.head_dim)},
    {"the number of groups", APR_FACT_WHOLE, offsetof(apr_op_args, ssd.n_groups)},
    {"the size of a state", APR_FACT_WHOLE, offsetof(apr_op_args, ssd.state_dim)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->ssd.n_tokens = g->n_tokens;
    args->ssd.xbc = apr_op_memory_value(g, op->in[0]);
    args->ssd.dt = apr_op_memory_value(g, op->in[1]);
    args->ssd.rate = apr_op_memory_vector(g, op->weight[RATE]);
    args->ssd.dt_bias = apr_op_memory_vector(g, op->weight[DT_BIAS]);
    args->ssd.skip = apr_op_memory_vector(g, op->weight[SKIP]);
    args->ssd.state = apr_op_memory_state(g, op->state);
    args->ssd.slots = g->slots;
    args->ssd.slot_bytes = apr_op_memory_slot_bytes(g, op->state);
    args->ssd.out = apr_op_memory_value(g, op->out);
    args->ssd.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_ssd = {
    .kind = APR_OP_SSD,
    .step = APR_BATCH_PER_SEQUENCE,
    .n_inputs = 2,
    .state = APR_STATE_READ_AND_WRITTEN,
    .weights = {[RATE] = {"rates", APR_USE_FLOAT}, [DT_BIAS] = {"time steps", APR_USE_FLOAT}, [SKIP] = {"skips", APR_USE_FLOAT}},
    .facts = facts,
    .bound = {1e-3, 1e-4, "float32 sums in another order, over all tokens so far"},
    .bind = bind,
};
