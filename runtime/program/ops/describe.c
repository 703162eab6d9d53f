/* describe.c - the description of an operation that multiplies by a matrix or reads a table. */
#include "runtime/program/ops/describe.h"

#include <stdio.h>

void apr_describe_weight(apr_op_kind kind, const apr_tensor *weight, int64_t n_tokens, char *text, size_t n_bytes)
{
    snprintf(text, n_bytes, "%s '%s' (%s [%lld, %lld], %lld tokens)", apr_op_name(kind), weight->name != NULL ? weight->name : "?",
             apr_tensor_encoding(weight), (long long)weight->dims[0], (long long)weight->dims[weight->rank - 1], (long long)n_tokens);
}
