/* op_positions.c - looks up a learned embedding for each position. */
#include "kernels/cuda/api.h"
#include "runtime/program/ops/describe.h"

static const apr_op_fact facts[] = {
    {"the row of position 0", APR_FACT_WHOLE, offsetof(apr_op_args, positions.first)},
    {0},
};

/* A device writes the numbers of the rows into its workspace. */
static size_t device_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    (void)program;
    (void)op;
    return apr_cuda_round((size_t)sizes->n_batch * sizeof(int32_t));
}

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->positions = (apr_positions_args){.n_tokens = g->n_tokens,
                                           .width = g->program->values[op->out].width,
                                           .position = g->position,
                                           .first = op->args.positions.first,
                                           .position_at = g->position_at,
                                           .per_sequence = g->per_sequence,
                                           .table = g->tables[op->weight[0]],
                                           .out = apr_op_memory_value(g, op->out),
                                           .work = g->work};
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    apr_describe_weight(APR_OP_POSITIONS, args->positions.table, args->positions.n_tokens, text, n);
}

const apr_op_spec apr_spec_positions = {
    .kind = APR_OP_POSITIONS,
    .step = APR_BATCH_PER_SEQUENCE,
    .weights = {{"table", APR_USE_ROWS}},
    .facts = facts,
    .bound = {2e-3, 5e-4, "a table decoded to float32 is the same bits; kept as FP16 on a device it is rounded to 2^-11"},
    .device_bytes = device_bytes,
    .bind = bind,
    .describe = describe,
};
