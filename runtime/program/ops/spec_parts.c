/* spec_parts.c - what the specs of operations share. */
#include "runtime/program/ops/spec_parts.h"
#include "formats/tensor/packing.h"
#include "kernels/cuda/api.h"

#include <stdio.h>

/* Weight j of the operation if it is a matrix that it multiplies by, else NULL. */
static const apr_weight_slot *matrix_of(const apr_program *program, const apr_op *op, int j)
{
    const bool multiplies = op->weight[j] >= 0 && apr_op_specs[op->kind]->weights[j].use == APR_USE_MULTIPLIED;
    return multiplies ? &program->weights[op->weight[j]] : NULL;
}

size_t apr_products_floats(const apr_program *program, const apr_op *op)
{
    size_t most = 0;
    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        const apr_weight_slot *const slot = matrix_of(program, op, j);
        const size_t floats = slot != NULL ? apr_linear_slice(slot->dims[slot->rank - 1]) : 0;
        if (floats > most) most = floats;
    }
    return most;
}

size_t apr_products_bytes(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes)
{
    const bool is_head = program->values[op->out].is_logits; /* a large matrix and few tokens: the smallest tile is enough */
    const int64_t n_tokens = is_head ? sizes->n_logits : sizes->n_batch;
    const size_t tile_bytes = is_head && sizes->tile_bytes > APR_CUDA_MIN_DEQUANTIZED_BYTES ? APR_CUDA_MIN_DEQUANTIZED_BYTES : sizes->tile_bytes;
    size_t most = 0;

    for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) {
        const apr_weight_slot *const slot = matrix_of(program, op, j);
        if (slot == NULL) continue;
        const bool is_f16 = sizes->weight_dtypes != NULL && sizes->weight_dtypes[op->weight[j]] == APR_F16;
        const size_t bytes =
            apr_cuda_linear_bytes_within(n_tokens, slot->dims[slot->rank - 1], slot->dims[slot->rank - 2], is_f16, tile_bytes);
        if (bytes > most) most = bytes;
    }
    return most;
}

void apr_describe_floats(apr_op_kind kind, int64_t n_tokens, char *text, size_t n_bytes)
{
    snprintf(text, n_bytes, "%s (f32, %lld tokens)", apr_op_name(kind), (long long)n_tokens);
}

void apr_describe_weight(apr_op_kind kind, const apr_tensor *weight, int64_t n_tokens, char *text, size_t n_bytes)
{
    const char *const type = weight->packing != NULL ? weight->packing->scheme : apr_dtypes[weight->dtype].name;
    snprintf(text, n_bytes, "%s '%s' (%s [%lld, %lld], %lld tokens)", apr_op_name(kind), weight->name != NULL ? weight->name : "?", type,
             (long long)weight->dims[0], (long long)weight->dims[weight->rank - 1], (long long)n_tokens);
}
