/* op_linear.c - a matrix product with an optional bias. */
#include "kernels/cuda/small_gemm_workspace.h"
#include "runtime/program/ops/describe.h"

static const apr_op_fact facts[] = {
    {"the number of heads with separate matrices", APR_FACT_WHOLE, offsetof(apr_op_args, linear.heads.n)},
    {"the rows of a head", APR_FACT_WHOLE, offsetof(apr_op_args, linear.heads.rows)},
    {"the first row of a head's matrix", APR_FACT_WHOLE, offsetof(apr_op_args, linear.heads.first)},
    {"whether a head's matrix is transposed", APR_FACT_FLAG, offsetof(apr_op_args, linear.heads.transposed)},
    {0},
};

static int64_t at_least_one(int64_t n) { return n > 0 ? n : 1; }

/* Up to this many tokens use small_gemm whatever the batch size is, so that a sequence's results do not depend on it. */
static size_t small_gemm_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    const bool has_kernel = sizes->weight_dtypes == NULL || apr_small_gemm_has(sizes->weight_dtypes[op->weight[0]]);
    const int64_t n_in = apr_small_gemm_columns(program->values[op->in[0]].width);
    return has_kernel ? apr_cuda_linear_small_gemm_bytes(APR_SMALL_GEMM_MAX_TOKENS, n_in, sizes->n_multiprocessors) : 0;
}

static size_t host_floats(const apr_program *program, const apr_op *op)
{
    const apr_weight_slot *const matrix = &program->weights[op->weight[0]];
    return apr_linear_slice(matrix->dims[matrix->rank - 1]);
}

/* Where each head has its own matrix, a token has one input row per head. */
static size_t device_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    const apr_linear_heads *const heads = &op->args.linear.heads;
    const apr_weight_slot *const matrix = &program->weights[op->weight[0]];
    const int64_t n_in = matrix->dims[matrix->rank - 1], n_out = matrix->dims[matrix->rank - 2];
    const bool is_f16 = sizes->weight_dtypes != NULL && sizes->weight_dtypes[op->weight[0]] == APR_F16;
    const bool is_head = program->values[op->out].is_logits; /* a large matrix and few tokens: the smallest tile is enough */
    const size_t tile_bytes =
        is_head && sizes->tile_bytes > APR_CUDA_MIN_DEQUANTIZED_BYTES ? APR_CUDA_MIN_DEQUANTIZED_BYTES : sizes->tile_bytes;

    if (heads->n > 0)
        return apr_cuda_linear_heads_bytes_within(sizes->n_batch, heads, program->values[op->in[0]].width / heads->n, n_in, is_f16,
                                                  sizes->tile_bytes);
    const size_t product = apr_cuda_linear_bytes_within(is_head ? sizes->n_logits : sizes->n_batch, n_in, n_out, is_f16, tile_bytes);
    const size_t small = small_gemm_bytes(program, op, sizes);
    return small > product ? small : product;
}

/* Logits are computed for some rows of the input only. */
static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    const int64_t n_in = g->program->values[op->in[0]].width, n_heads = at_least_one(args->linear.heads.n);
    const apr_op_memory_rows rows = apr_op_memory_rows_of(g, op->out);
    args->linear.n_tokens = rows.n;
    args->linear.n_in = n_in / n_heads;
    args->linear.n_out = g->program->values[op->out].width / n_heads;
    args->linear.x = apr_op_memory_value(g, op->in[0]) + rows.first * n_in;
    args->linear.weight = g->matrices[op->weight[0]];
    args->linear.bias = apr_op_memory_vector(g, op->weight[1]);
    args->linear.out = apr_op_memory_value(g, op->out);
    args->linear.work = g->work;
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    apr_describe_weight(APR_OP_LINEAR, args->linear.weight, args->linear.n_tokens, text, n);
}

const apr_op_spec apr_spec_linear = {
    .kind = APR_OP_LINEAR,
    .step = APR_BATCH_FEW_ROWS,
    .n_inputs = 1,
    .weights = {{"matrix", APR_USE_MULTIPLIED}, {"bias", APR_USE_FLOAT, .optional = true}},
    .facts = facts,
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
    .fp16_bound = {3e-2, 3e-3, "inputs and weights rounded to FP16 (2^-11 each), summed in float32"},
    .host_floats = host_floats,
    .device_bytes = device_bytes,
    .bind = bind,
    .describe = describe,
};
