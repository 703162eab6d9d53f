/* op_delta.c - the gated delta rule: a state matrix per value head, updated and read. */
#include "runtime/program/op_spec.h"

enum { RATE, DT_BIAS };

static const apr_op_fact facts[] = {
    {"the number of key heads", APR_FACT_WHOLE, offsetof(apr_op_args, delta.n_key_heads)},
    {"the number of value heads", APR_FACT_WHOLE, offsetof(apr_op_args, delta.n_value_heads)},
    {"the size of a key", APR_FACT_WHOLE, offsetof(apr_op_args, delta.key_dim)},
    {"the size of a value", APR_FACT_WHOLE, offsetof(apr_op_args, delta.value_dim)},
    {"whether value heads are tiled", APR_FACT_FLAG, offsetof(apr_op_args, delta.tiled)},
    {"whether each channel of a key decays by itself", APR_FACT_FLAG, offsetof(apr_op_args, delta.by_channel)},
    {"epsilon", APR_FACT_REAL, offsetof(apr_op_args, delta.eps)},
    {"the floor of the decay's logarithm", APR_FACT_REAL, offsetof(apr_op_args, delta.floor)},
    {0},
};

static size_t host_floats(const apr_program *program, const apr_op *op)
{
    (void)program;
    return apr_delta_slice(op->args.delta.key_dim, op->args.delta.value_dim);
}

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->delta.n_tokens = g->n_tokens;
    args->delta.qkv = apr_op_memory_value(g, op->in[0]);
    args->delta.a = apr_op_memory_value(g, op->in[1]);
    args->delta.b = apr_op_memory_value(g, op->in[2]);
    args->delta.rate = apr_op_memory_vector(g, op->weight[RATE]);
    args->delta.dt_bias = apr_op_memory_vector(g, op->weight[DT_BIAS]);
    args->delta.state = apr_op_memory_state(g, op->state);
    args->delta.slots = g->slots;
    args->delta.slot_bytes = apr_op_memory_slot_bytes(g, op->state);
    args->delta.out = apr_op_memory_value(g, op->out);
    args->delta.work = g->work;
}

const apr_op_spec apr_spec_delta = {
    .kind = APR_OP_DELTA,
    .step = APR_BATCH_PER_SEQUENCE,
    .n_inputs = 3,
    .state = APR_STATE_READ_AND_WRITTEN,
    .weights = {[RATE] = {"rates", APR_USE_FLOAT}, [DT_BIAS] = {"time steps", APR_USE_FLOAT}},
    .facts = facts,
    .host_floats = host_floats,
    .bound = {1e-3, 1e-4, "float32 sums in another order, over all tokens so far"},
    .bind = bind,
};
