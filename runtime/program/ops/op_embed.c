/* op_embed.c - looks up rows of the token embeddings. */
#include "kernels/cuda/api.h"
#include "runtime/program/ops/describe.h"

/* A device reads the ids from its workspace. */
static size_t device_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    (void)program;
    (void)op;
    return apr_cuda_round((size_t)sizes->n_batch * sizeof(int32_t));
}

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->embed = (apr_embed_args){.n_tokens = g->n_tokens,
                                   .width = g->program->values[op->out].width,
                                   .n_rows = op->args.embed.n_rows,
                                   .ids = g->ids,
                                   .table = g->tables[op->weight[0]],
                                   .out = g->host_rows != NULL ? g->host_rows : apr_op_memory_value(g, op->out)};
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    apr_describe_weight(APR_OP_EMBED, args->embed.table, args->embed.n_tokens, text, n);
}

const apr_op_spec apr_spec_embed = {
    .kind = APR_OP_EMBED,
    .reads_ids = true,
    .weights = {{"table", APR_USE_ROWS}},
    .bound = {2e-3, 5e-4, "a table decoded to float32 is the same bits; kept as FP16 on a device it is rounded to 2^-11"},
    .device_bytes = device_bytes,
    .bind = bind,
    .describe = describe,
};
