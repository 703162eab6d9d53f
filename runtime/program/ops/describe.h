/* runtime/program/ops/describe.h - the description of an operation that multiplies by a matrix or reads a table. */
#ifndef APR_RUNTIME_OPS_DESCRIBE_H
#define APR_RUNTIME_OPS_DESCRIBE_H

#include "runtime/program/op_spec.h"

/* "linear 'NAME' (q4_k [4096, 4096], 12 tokens)" */
void apr_describe_weight(apr_op_kind kind, const apr_tensor *weight, int64_t n_tokens, char *text, size_t n_bytes);

#endif
