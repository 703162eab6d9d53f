/* plan_weights.c - sizes of a program's weights: by their shapes, and as stored in a model. */
#include "formats/tensor/packing.h"
#include "kernels/cuda/small_gemm_workspace.h"
#include "runtime/plan/plan.h"

#include <stdio.h>

uint64_t apr_plan_slot_bytes(const apr_weight_slot *slot, apr_dtype dtype)
{
    const uint64_t n_tensors = (uint64_t)slot->count;
    uint64_t n_rows = 1;
    int64_t row_bytes = apr_row_bytes(dtype, slot->dims[slot->rank - 1]);

    for (int i = 0; i + 1 < slot->rank; i++) n_rows = apr_saturating_mul(n_rows, (uint64_t)slot->dims[i]);
    if (row_bytes < 0) row_bytes = apr_row_bytes(APR_F16, slot->dims[slot->rank - 1]);
    return apr_saturating_mul(n_tensors, apr_pad64(apr_saturating_mul(n_rows, (uint64_t)row_bytes)));
}

uint64_t apr_plan_tensor_bytes(const apr_tensor *tensor)
{
    if (apr_tensor_is_packed(tensor)) return apr_pad64(apr_packing_bytes(tensor->packing, apr_tensor_rows(tensor)));
    return apr_saturating_add(apr_pad64(tensor->n_bytes), tensor->scale != NULL ? apr_pad64(tensor->scale->n_bytes) : 0);
}

void apr_plan_default_weights(const apr_program *program, uint64_t *bytes)
{
    for (size_t i = 0; i < program->n_weights; i++)
        bytes[i] = program->weights[i].optional ? 0 : apr_plan_slot_bytes(&program->weights[i], APR_F16);
}

static uint64_t tensor_bytes(const apr_model *model, const char *name, const char *suffix)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const apr_tensor *const tensor = apr_model_find(model, full);
    return tensor != NULL ? apr_plan_tensor_bytes(tensor) : 0;
}

void apr_plan_model_weights(const apr_program *program, const apr_model *model, uint64_t *bytes)
{
    for (size_t i = 0; i < program->n_weights; i++) {
        const apr_weight_slot *const slot = &program->weights[i];
        bytes[i] = 0;
        for (int64_t j = 0; j < slot->count; j++) {
            char name[256];
            apr_slot_name(slot, j, name, sizeof name);
            bytes[i] = apr_saturating_add(bytes[i], tensor_bytes(model, name, ""));
        }
        /* gpt-oss stores the codes and the scales of its experts in separate tensors */
        if (bytes[i] == 0)
            bytes[i] = apr_saturating_add(tensor_bytes(model, slot->name, "_blocks"), tensor_bytes(model, slot->name, "_scales"));
    }
}

void apr_plan_composed_weights(const apr_program *program, const apr_model *model, uint64_t *bytes)
{
    for (size_t i = 0; i < program->n_weights; i++) {
        const apr_weight_slot *const slot = &program->weights[i];
        bytes[i] = 0;
        for (int64_t j = 0; j < slot->count; j++) {
            char name[256];
            const apr_tensor *const tensor = apr_model_find(model, apr_slot_name(slot, j, name, sizeof name));
            if (tensor != NULL && apr_tensor_is_composed(tensor)) bytes[i] = apr_saturating_add(bytes[i], apr_pad64(tensor->n_bytes));
        }
    }
}

/* The matrices of a stack one after another, tiled or as stored. */
static uint64_t stack_bytes(const apr_weight_slot *slot, apr_dtype dtype, bool tiled)
{
    uint64_t n_rows = (uint64_t)slot->count;
    for (int i = 0; i + 1 < slot->rank; i++) n_rows = apr_saturating_mul(n_rows, (uint64_t)slot->dims[i]);
    return apr_pad64(apr_saturating_mul(n_rows, (uint64_t)apr_tiled_row_bytes(dtype, tiled, slot->dims[slot->rank - 1])));
}

/* Would the decode GEMV run these experts if the workspace were large enough? */
static bool can_use_gemv(const apr_op *op, const apr_dtype *dtypes)
{
    apr_experts_args a = op->args.experts;
    apr_tensor stacks[3]; /* gate, up, down */

    for (int k = 0; k < 3; k++) {
        if (op->weight[k] < 0) return false;
        stacks[k] = (apr_tensor){.dtype = dtypes[op->weight[k]], .tiled = true};
        if (apr_tile_columns(stacks[k].dtype) == 0) return false;
    }
    a.n_tokens = 1;
    a.gate = &stacks[0], a.up = &stacks[1], a.down = &stacks[2];
    a.work.slice = SIZE_MAX / sizeof(float);
    return apr_experts_have_decode_gemv(&a);
}

bool apr_plan_pads_matrix(const apr_program *program, size_t slot, apr_dtype dtype, int64_t n_sequences)
{
    const apr_weight_slot *const w = &program->weights[slot];

    if (n_sequences < 2 || w->rank != 2 || w->count != 1 || !apr_small_gemm_pads(dtype, w->dims[0], w->dims[1])) return false;
    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        for (int k = 0; k < APR_OP_MAX_WEIGHTS; k++)
            if (op->weight[k] == (int)slot && op->kind != APR_OP_EMBED && (op->kind != APR_OP_LINEAR || op->args.linear.heads.n > 0))
                return false;
    }
    return true;
}

static uint64_t padding_of(const apr_weight_slot *slot, apr_dtype dtype)
{
    return stack_bytes(slot, dtype, true) - stack_bytes(slot, dtype, false);
}

void apr_plan_padded_weights(const apr_program *program, const apr_dtype *dtypes, int64_t n_sequences, uint64_t *bytes)
{
    for (size_t i = 0; i < program->n_weights; i++)
        bytes[i] = apr_plan_pads_matrix(program, i, dtypes[i], n_sequences) ? padding_of(&program->weights[i], dtypes[i]) : 0;
    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        if (op->kind != APR_OP_EXPERTS || !can_use_gemv(op, dtypes)) continue;
        for (int k = 0; k < 3; k++) {
            const int w = op->weight[k];
            bytes[w] = padding_of(&program->weights[w], dtypes[w]);
        }
    }
}
