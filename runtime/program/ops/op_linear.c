/* op_linear.c - a product with a matrix, and a bias. */
#include "runtime/program/ops/parts.h"

/* Logits are made of some rows of their input only. */
static void bind(const apr_ground *g, const apr_op *op, apr_op_args *args)
{
    const int64_t n_in = g->program->values[op->in[0]].width;
    const apr_ground_rows rows = apr_ground_rows_of(g, op->out);
    args->linear = (apr_linear_args){.n_tokens = rows.n,
                                     .n_in = n_in,
                                     .n_out = g->program->values[op->out].width,
                                     .x = apr_ground_value(g, op->in[0]) + rows.first * n_in,
                                     .weight = g->matrices[op->weight[0]],
                                     .bias = apr_ground_vector(g, op->weight[1]),
                                     .out = apr_ground_value(g, op->out),
                                     .work = g->work};
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    apr_describe_weight(APR_OP_LINEAR, args->linear.weight, args->linear.n_tokens, text, n);
}

const apr_op_card apr_card_linear = {
    .kind = APR_OP_LINEAR,
    .n_inputs = 1,
    .weights = {{"matrix", APR_USE_MULTIPLIED}, {"bias", APR_USE_FLOAT, .optional = true}},
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
    .fp16_bound = {3e-2, 3e-3, "inputs and weights rounded to FP16 (2^-11 each), summed in float32"},
    .host_floats = apr_products_floats,
    .device_bytes = apr_products_bytes,
    .bind = bind,
    .describe = describe,
};
