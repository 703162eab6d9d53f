/* runtime/program/ops/spec_parts.h - descriptions of operations that several specs share. */
#ifndef APR_RUNTIME_OPS_PARTS_H
#define APR_RUNTIME_OPS_PARTS_H

#include "runtime/program/op_spec.h"

/* "add (f32, 12 tokens)" and "linear 'NAME' (q4_k [4096, 4096], 12 tokens)" */
void apr_describe_floats(apr_op_kind kind, int64_t n_tokens, char *text, size_t n_bytes);
void apr_describe_weight(apr_op_kind kind, const apr_tensor *weight, int64_t n_tokens, char *text, size_t n_bytes);

#endif
