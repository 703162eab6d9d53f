/* op_card.c - the table of the operations' cards, and what can be said of any of them. */
#include "runtime/program/op_card.h"

#include <stdio.h>

const apr_op_card *const apr_op_cards[APR_OP_COUNT] = {
#define X(ID, id, name) [APR_OP_##ID] = &apr_card_##id,
    APR_OP_LIST(X)
#undef X
};

void apr_op_describe(apr_op_kind kind, const apr_op_args *args, char *text, size_t n_bytes)
{
    if (apr_op_cards[kind]->describe != NULL) apr_op_cards[kind]->describe(args, text, n_bytes);
    else snprintf(text, n_bytes, "%s", apr_op_name(kind));
}

const char *apr_op_lacks(const apr_op *op, const apr_backend *backend, char *text, size_t n_bytes)
{
    const apr_op_card *const card = apr_op_cards[op->kind];
    const unsigned twists = card->twists != NULL ? card->twists(op) & ~backend->twists : 0;

    if (card->bind != NULL && backend->ops[op->kind] != NULL && twists == 0) return NULL;
    int n = snprintf(text, n_bytes, "%s", apr_op_name(op->kind));
    for (int i = 0; i < APR_TWIST_COUNT && n >= 0 && (size_t)n < n_bytes; i++)
        if ((twists >> i & 1) != 0) n += snprintf(text + n, n_bytes - (size_t)n, " with %s", apr_twist_name((apr_twist)i));
    return text;
}

const apr_op *apr_program_missing_op(const apr_program *program, const apr_backend *backend)
{
    char text[128];
    for (size_t i = 0; i < program->n_ops; i++)
        if (apr_op_lacks(&program->ops[i], backend, text, sizeof text) != NULL) return &program->ops[i];
    return NULL;
}
