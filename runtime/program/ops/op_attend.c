/* op_attend.c - causal attention to the cache, optionally with a window and sinks. */
#include "kernels/cuda/api.h"
#include "runtime/program/op_spec.h"

#include <stdio.h>

enum { SINKS }; /* its only weight */

static const apr_op_fact facts[] = {
    {"the scale of the scores", APR_FACT_REAL, offsetof(apr_op_args, attend.scale)},
    {"the cap of the scores", APR_FACT_REAL, offsetof(apr_op_args, attend.softcap)},
    {"the number of heads", APR_FACT_WHOLE, offsetof(apr_op_args, attend.n_heads)},
    {"the number of key/value heads", APR_FACT_WHOLE, offsetof(apr_op_args, attend.n_kv_heads)},
    {"the size of a key", APR_FACT_WHOLE, offsetof(apr_op_args, attend.key_dim)},
    {"the size of a value", APR_FACT_WHOLE, offsetof(apr_op_args, attend.value_dim)},
    {"the window", APR_FACT_WHOLE, offsetof(apr_op_args, attend.window)},
    {"the chunk", APR_FACT_WHOLE, offsetof(apr_op_args, attend.chunk)},
    {"the number of chosen positions", APR_FACT_WHOLE, offsetof(apr_op_args, attend.n_chosen)},
    {0},
};

static int64_t widest(const apr_attend_args *a) { return a->key_dim > a->value_dim ? a->key_dim : a->value_dim; }

static size_t host_floats(const apr_program *program, const apr_op *op)
{
    (void)program;
    return apr_attend_slice(widest(&op->args.attend));
}

static size_t host_shared(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    (void)program;
    (void)sizes;
    return apr_attend_shared(op->args.attend.value_dim);
}

static size_t device_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    (void)program;
    (void)sizes;
    return apr_cuda_attend_bytes(op->args.attend.n_heads, op->args.attend.value_dim);
}

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->attend.n_tokens = g->n_tokens;
    args->attend.position = g->position;
    args->attend.position_at = g->position_at;
    args->attend.per_sequence = g->per_sequence;
    args->attend.gathered = g->gathered;
    args->attend.n_gathered = g->n_gathered;
    args->attend.sinks = apr_op_memory_vector(g, op->weight[SINKS]);
    args->attend.q = apr_op_memory_value(g, op->in[0]);
    args->attend.chosen = op->in[1] >= 0 ? apr_op_memory_value(g, op->in[1]) : NULL;
    args->attend.keys = apr_op_memory_cache(g, op->state, 0);
    args->attend.values = apr_op_memory_cache(g, op->state, 1);
    args->attend.out = apr_op_memory_value(g, op->out);
    args->attend.work = g->work;
    args->attend.shared = g->shared;
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    const apr_attend_args *const a = &args->attend;
    snprintf(text, n, "%s (%lld tokens at position %lld, %lld heads on %lld of %lld, cache %s)", apr_op_name(APR_OP_ATTEND),
             (long long)a->n_tokens, (long long)a->position, (long long)a->n_heads, (long long)a->n_kv_heads, (long long)a->key_dim,
             apr_dtypes[a->keys.dtype].name);
}

const apr_op_spec apr_spec_attend = {
    .kind = APR_OP_ATTEND,
    .step = APR_BATCH_PER_SEQUENCE,
    .n_inputs = 2, /* queries, chosen positions */
    .state = APR_STATE_READ,
    .weights = {[SINKS] = {"sinks", APR_USE_FLOAT, .optional = true}},
    .facts = facts,
    .bound = {2e-3, 2e-4, "float32 scores, softmax and sums in another order"},
    .host_floats = host_floats,
    .host_shared = host_shared,
    .device_bytes = device_bytes,
    .bind = bind,
    .describe = describe,
};
