/* op_experts.c - the feed-forward of the chosen experts, summed with their weights. */
#include "kernels/cuda/small_gemm_workspace.h"
#include "runtime/program/ops/describe.h"

enum { GATE, UP, DOWN, GATE_BIAS, UP_BIAS, DOWN_BIAS };

static const apr_op_fact facts[] = {
    {"the activation", APR_FACT_CHOICE, offsetof(apr_op_args, experts.glu.activation)},
    {"the limit", APR_FACT_REAL, offsetof(apr_op_args, experts.glu.limit)},
    {"alpha", APR_FACT_REAL, offsetof(apr_op_args, experts.glu.alpha)},
    {"the offset added to up", APR_FACT_REAL, offsetof(apr_op_args, experts.glu.up_offset)},
    {"the number of experts", APR_FACT_WHOLE, offsetof(apr_op_args, experts.n_experts)},
    {"the number of experts used", APR_FACT_WHOLE, offsetof(apr_op_args, experts.n_used)},
    {"whether routing weights apply to the input", APR_FACT_FLAG, offsetof(apr_op_args, experts.weight_on_input)},
    {0},
};

static size_t host_floats(const apr_program *program, const apr_op *op)
{
    const apr_experts_args *const a = &op->args.experts;
    size_t most = apr_experts_slice(a->n_in, a->n_mid);

    for (int j = GATE; j <= DOWN; j++) {
        const apr_weight_slot *const matrix = op->weight[j] >= 0 ? &program->weights[op->weight[j]] : NULL;
        const size_t product = matrix != NULL ? apr_linear_slice(matrix->dims[matrix->rank - 1]) : 0;
        if (product > most) most = product;
    }
    return most;
}

/* Gathered tokens of each expert, shared by all threads. */
static size_t host_shared(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    const apr_experts_args *const a = &op->args.experts;
    (void)program;
    return apr_experts_shared(sizes->n_batch, a->n_in, a->n_mid, a->n_out);
}

/* Can small_gemm read the types of all its matrices, as far as they are known? */
static bool can_use_small_gemm(const apr_op *op, const apr_dtype *weight_dtypes)
{
    for (int j = GATE; j <= DOWN && weight_dtypes != NULL; j++)
        if (op->weight[j] >= 0 && !apr_small_gemm_has(weight_dtypes[op->weight[j]])) return false;
    return true;
}

static size_t device_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    static const apr_tensor some = {0};
    apr_experts_args a = op->args.experts;
    (void)program;
    a.gate = op->weight[GATE] >= 0 ? &some : NULL; /* only tells that there is a gate */
    const size_t pairs = apr_cuda_experts_bytes(sizes->n_batch, a.n_in, a.n_mid, a.n_out, a.n_used);
    if (!can_use_small_gemm(op, sizes->weight_dtypes)) return pairs;
    const size_t small = apr_cuda_experts_small_gemm_room(&a, sizes->n_batch, sizes->n_multiprocessors);
    return small > pairs ? small : pairs;
}

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    apr_experts_args *const a = &args->experts;
    a->n_tokens = g->n_tokens;
    a->x = apr_op_memory_value(g, op->in[0]);
    a->routes = apr_op_memory_value(g, op->in[1]);
    a->gate = apr_op_memory_experts(g, op->weight[GATE]);
    a->up = apr_op_memory_experts(g, op->weight[UP]);
    a->down = apr_op_memory_experts(g, op->weight[DOWN]);
    a->gate_bias = apr_op_memory_vector(g, op->weight[GATE_BIAS]);
    a->up_bias = apr_op_memory_vector(g, op->weight[UP_BIAS]);
    a->down_bias = apr_op_memory_vector(g, op->weight[DOWN_BIAS]);
    a->out = apr_op_memory_value(g, op->out);
    a->work = g->work;
    a->shared = g->shared;
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    apr_describe_weight(APR_OP_EXPERTS, args->experts.up, args->experts.n_tokens, text, n);
}

const apr_op_spec apr_spec_experts = {
    .kind = APR_OP_EXPERTS,
    .step = APR_BATCH_FEW_ROWS,
    .n_inputs = 2, /* the rows, and their routes */
    .weights = {[GATE] = {"gate", APR_USE_MULTIPLIED, .optional = true},
                [UP] = {"up", APR_USE_MULTIPLIED},
                [DOWN] = {"down", APR_USE_MULTIPLIED},
                [GATE_BIAS] = {"bias of the gate", APR_USE_FLOAT, .optional = true},
                [UP_BIAS] = {"bias of up", APR_USE_FLOAT, .optional = true},
                [DOWN_BIAS] = {"bias of down", APR_USE_FLOAT, .optional = true}},
    .facts = facts,
    /* Three products in a row, each with the errors of one (op_linear.c): sqrt(3) times its relative bound. */
    .bound = {1e-3, 1.75e-4, "float32 sums in another order, of three products in a row"},
    .fp16_bound = {3e-2, 5.2e-3, "inputs and weights rounded to FP16 (2^-11 each), in three products in a row"},
    .host_floats = host_floats,
    .host_shared = host_shared,
    .device_bytes = device_bytes,
    .bind = bind,
    .describe = describe,
};
