/* op_attend.c - causal attention to the cache, in a window or not, with sinks or not. */
#include "kernels/cuda/api.h"
#include "runtime/program/ops/parts.h"

#include <stdio.h>

enum { SINKS }; /* its one weight */

static unsigned twists(const apr_op *op) { return op->weight[SINKS] >= 0 ? 1u << APR_TWIST_SINKS : 0; }

static size_t host_floats(const apr_program *program, const apr_op *op)
{
    (void)program;
    return apr_attend_slice(op->n_heads, op->n_kv_heads, op->head_dim);
}

static size_t device_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    (void)program;
    (void)sizes;
    return apr_cuda_attend_bytes(op->n_heads, op->head_dim);
}

static void bind(const apr_ground *g, const apr_op *op, apr_op_args *args)
{
    args->attend = (apr_attend_args){.n_tokens = g->n_tokens,
                                     .position = g->position,
                                     .n_heads = op->n_heads,
                                     .n_kv_heads = op->n_kv_heads,
                                     .head_dim = op->head_dim,
                                     .window = op->window,
                                     .scale = op->scale,
                                     .q = apr_ground_value(g, op->in[0]),
                                     .keys = apr_ground_cache(g, op->state, 0),
                                     .values = apr_ground_cache(g, op->state, 1),
                                     .out = apr_ground_value(g, op->out),
                                     .work = g->work};
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    const apr_attend_args *const a = &args->attend;
    snprintf(text, n, "%s (%lld tokens at position %lld, %lld heads on %lld of %lld, cache %s)", apr_op_name(APR_OP_ATTEND),
             (long long)a->n_tokens, (long long)a->position, (long long)a->n_heads, (long long)a->n_kv_heads, (long long)a->head_dim,
             apr_dtypes[a->keys.dtype].name);
}

const apr_op_card apr_card_attend = {
    .kind = APR_OP_ATTEND,
    .n_inputs = 1,
    .state = APR_STATE_READ,
    .weights = {[SINKS] = {"sinks", APR_USE_FLOAT, .optional = true}},
    .bound = {2e-3, 2e-4, "float32 scores, softmax and sums in another order"},
    .twists = twists,
    .host_floats = host_floats,
    .device_bytes = device_bytes,
    .bind = bind,
    .describe = describe,
};
