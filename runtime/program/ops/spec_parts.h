/* runtime/program/ops/spec_parts.h - what the specs of operations share: the workspace of products, and descriptions. */
#ifndef APR_RUNTIME_OPS_PARTS_H
#define APR_RUNTIME_OPS_PARTS_H

#include "runtime/program/op_spec.h"

/* Workspace of an operation that multiplies by each of its matrices: host_floats and device_bytes of a spec. Experts are multiplied one
 * at a time, possibly with all tokens, because all of them may have chosen the same one. */
size_t apr_products_floats(const apr_program *program, const apr_op *op);
size_t apr_products_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes);

/* "add (f32, 12 tokens)" and "linear 'NAME' (q4_k [4096, 4096], 12 tokens)" */
void apr_describe_floats(apr_op_kind kind, int64_t n_tokens, char *text, size_t n_bytes);
void apr_describe_weight(apr_op_kind kind, const apr_tensor *weight, int64_t n_tokens, char *text, size_t n_bytes);

#endif
