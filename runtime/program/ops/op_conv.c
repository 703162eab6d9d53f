/* op_conv.c - a convolution of each channel over the last few tokens. */
#include "runtime/program/op_spec.h"

enum { TAPS, BIAS };

static const apr_op_fact facts[] = {
    {"the number of taps", APR_FACT_WHOLE, offsetof(apr_op_args, conv.n_taps)},
    {"the activation", APR_FACT_CHOICE, offsetof(apr_op_args, conv.activation)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->conv.n_tokens = g->n_tokens;
    args->conv.x = apr_op_memory_value(g, op->in[0]);
    args->conv.weight = apr_op_memory_vector(g, op->weight[TAPS]);
    args->conv.bias = apr_op_memory_vector(g, op->weight[BIAS]);
    args->conv.state = apr_op_memory_state(g, op->state);
    args->conv.slots = g->slots;
    args->conv.slot_bytes = apr_op_memory_slot_bytes(g, op->state);
    args->conv.out = apr_op_memory_value(g, op->out);
    args->conv.n_threads = g->work.n_threads;
}

const apr_op_spec apr_spec_conv = {
    .kind = APR_OP_CONV,
    .step = APR_BATCH_PER_SEQUENCE,
    .n_inputs = 1,
    .state = APR_STATE_READ_AND_WRITTEN,
    .weights = {[TAPS] = {"taps", APR_USE_FLOAT}, [BIAS] = {"bias", APR_USE_FLOAT, .optional = true}},
    .facts = facts,
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
    .bind = bind,
};
