/* op_index.c - the index of sparse attention: which positions a token attends to. */
#include "runtime/program/op_spec.h"

#include <stdio.h>

static const apr_op_fact facts[] = {
    {"the scale of the scores", APR_FACT_REAL, offsetof(apr_op_args, index.scale)},
    {"the number of the indexer's heads", APR_FACT_WHOLE, offsetof(apr_op_args, index.n_heads)},
    {"the size of the indexer's keys", APR_FACT_WHOLE, offsetof(apr_op_args, index.head_dim)},
    {"the number of chosen positions", APR_FACT_WHOLE, offsetof(apr_op_args, index.n_chosen)},
    {0},
};

static size_t host_floats(const apr_program *program, const apr_op *op)
{
    (void)program;
    return apr_index_slice(op->args.index.n_chosen, op->args.index.head_dim);
}

static bool exceeds_device(const apr_op *op, char *why, size_t n)
{
    const apr_index_args *const a = &op->args.index;

    if (apr_index_fits_device(a->n_chosen, a->head_dim)) return false;
    snprintf(
        why, n,
        "chooses %lld positions with keys of %lld numbers; a GPU takes at most %d positions, and for so many keys of at most %lld numbers",
        (long long)a->n_chosen, (long long)a->head_dim, (int)APR_INDEX_MOST_CHOSEN, (long long)apr_index_longest_key(a->n_chosen));
    return true;
}

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->index.n_tokens = g->n_tokens;
    args->index.position = g->position;
    args->index.position_at = g->position_at;
    args->index.per_sequence = g->per_sequence;
    args->index.q = apr_op_memory_value(g, op->in[0]);
    args->index.weights = apr_op_memory_value(g, op->in[1]);
    args->index.keys = apr_op_memory_cache(g, op->state, 0);
    args->index.out = apr_op_memory_value(g, op->out);
    args->index.work = g->work;
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    const apr_index_args *const a = &args->index;
    snprintf(text, n, "%s (%lld tokens at position %lld, %lld heads of %lld, %lld positions, cache %s)", apr_op_name(APR_OP_INDEX),
             (long long)a->n_tokens, (long long)a->position, (long long)a->n_heads, (long long)a->head_dim, (long long)a->n_chosen,
             apr_dtypes[a->keys.dtype].name);
}

const apr_op_spec apr_spec_index = {
    .kind = APR_OP_INDEX,
    .step = APR_BATCH_PER_SEQUENCE,
    .n_inputs = 2, /* queries, weights of heads */
    .state = APR_STATE_READ,
    .facts = facts,
    .bound = {0.0, 0.0, "the choice is that of the reference where scores differ by more than their rounding"},
    .host_floats = host_floats,
    .exceeds_device = exceeds_device,
    .bind = bind,
    .describe = describe,
};
