/* op_kv_store.c - stores keys and values of the tokens in the cache. */
#include "runtime/program/op_spec.h"

#include <stdio.h>

static const apr_op_fact facts[] = {
    {"the number of key/value heads", APR_FACT_WHOLE, offsetof(apr_op_args, kv_store.n_kv_heads)},
    {"the size of a key", APR_FACT_WHOLE, offsetof(apr_op_args, kv_store.key_dim)},
    {"the size of a value", APR_FACT_WHOLE, offsetof(apr_op_args, kv_store.value_dim)},
    {0},
};

static void bind(const apr_op_memory *g, const apr_op *op, apr_op_args *args)
{
    args->kv_store.n_tokens = g->n_tokens;
    args->kv_store.position = g->position;
    args->kv_store.position_at = g->position_at;
    args->kv_store.per_sequence = g->per_sequence;
    args->kv_store.k = apr_op_memory_value(g, op->in[0]);
    args->kv_store.v = op->in[1] >= 0 ? apr_op_memory_value(g, op->in[1]) : NULL;
    args->kv_store.keys = apr_op_memory_cache(g, op->state, 0);
    args->kv_store.values = apr_op_memory_cache(g, op->state, 1);
}

static void describe(const apr_op_args *args, char *text, size_t n)
{
    const apr_kv_store_args *const a = &args->kv_store;
    snprintf(text, n, "%s (%lld tokens at position %lld, %lld heads of %lld, cache %s)", apr_op_name(APR_OP_KV_STORE),
             (long long)a->n_tokens, (long long)a->position, (long long)a->n_kv_heads, (long long)a->key_dim,
             apr_dtypes[a->keys.dtype].name);
}

const apr_op_spec apr_spec_kv_store = {
    .kind = APR_OP_KV_STORE,
    .step = APR_BATCH_PER_SEQUENCE,
    .n_inputs = 2, /* keys, values */
    .state = APR_STATE_WRITTEN,
    .facts = facts,
    .bound = {0.0, 0.0, "rounding to the type of the cache is defined to the bit"},
    .bind = bind,
    .describe = describe,
};
