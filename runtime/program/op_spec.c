/* op_spec.c - the table of operation specs, and functions over all of them. */
#include "runtime/program/op_spec.h"

#include <stddef.h>
#include <stdio.h>

const apr_op_spec *const apr_op_specs[APR_OP_COUNT] = {
#define X(ID, id, name) [APR_OP_##ID] = &apr_spec_##id,
    APR_OP_LIST(X)
#undef X
};

double apr_op_fact_of(const apr_op *op, const apr_op_fact *fact)
{
    const char *const at = (const char *)&op->args + fact->offset;
    switch (fact->type) {
    case APR_FACT_WHOLE: return (double)*(const int64_t *)(const void *)at;
    case APR_FACT_REAL: return (double)*(const float *)(const void *)at;
    case APR_FACT_CHOICE: return (double)*(const int *)(const void *)at;
    default: return *(const bool *)at ? 1.0 : 0.0;
    }
}

void apr_op_bind(const apr_op_memory *ground, const apr_op *op, apr_op_args *args)
{
    *args = op->args;
    apr_op_specs[op->kind]->bind(ground, op, args);
}

/* Where the arguments of each operation have the number of tokens. */
static const size_t n_tokens_offsets[APR_OP_COUNT] = {
#define X(ID, id, name) [APR_OP_##ID] = offsetof(apr_op_args, id.n_tokens),
    APR_OP_LIST(X)
#undef X
};

void apr_op_describe(apr_op_kind kind, const apr_op_args *args, char *text, size_t n_bytes)
{
    const int64_t *const n_tokens = (const int64_t *)(const void *)((const char *)args + n_tokens_offsets[kind]);

    if (apr_op_specs[kind]->describe != NULL) apr_op_specs[kind]->describe(args, text, n_bytes);
    else snprintf(text, n_bytes, "%s (f32, %lld tokens)", apr_op_name(kind), (long long)*n_tokens);
}

const apr_op *apr_program_missing_op(const apr_program *program, const apr_backend *backend)
{
    for (size_t i = 0; i < program->n_ops; i++)
        if (backend->ops[program->ops[i].kind] == NULL) return &program->ops[i];
    return NULL;
}
