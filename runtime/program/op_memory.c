/* op_memory.c - maps a program's indices to pointers. */
#include "runtime/program/op_memory.h"
#include "formats/base/bytes.h"

float *apr_op_memory_value(const apr_op_memory *ground, int value)
{
    if (ground->program->values[value].is_logits) return ground->logits;
    return ground->activations + ground->value_offsets[value] * ground->n_batch + ground->first * ground->program->values[value].width;
}

const float *apr_op_memory_vector(const apr_op_memory *ground, int slot)
{
    return slot >= 0 && ground->vector_offsets[slot] >= 0 ? ground->vectors + ground->vector_offsets[slot] : NULL;
}

const apr_tensor *apr_op_memory_experts(const apr_op_memory *ground, int slot) { return slot >= 0 ? ground->matrices[slot] : NULL; }

/* Start of the sequence's state; for paged states start of all sequences' state. */
static uint8_t *state_bytes(const apr_op_memory *ground, int state)
{
    const uint64_t stride = ground->state_strides != NULL ? ground->state_strides[state] : 0;
    return ground->states + ground->state_offsets[state] + (uint64_t)ground->sequence * stride;
}

uint64_t apr_op_memory_slot_bytes(const apr_op_memory *ground, int state)
{
    return ground->slots != NULL ? ground->state_strides[state] : 0;
}

float *apr_op_memory_state(const apr_op_memory *ground, int state) { return (float *)(void *)state_bytes(ground, state); }

const float *apr_op_memory_frequencies(const apr_op_memory *ground, int rope) { return ground->vectors + ground->rope_offsets[rope]; }

apr_cache apr_op_memory_cache(const apr_op_memory *ground, int state, int which)
{
    const apr_state *const facts = &ground->program->states[state];
    const int64_t n_cells = ground->state_cells[state], key_bytes = apr_row_bytes(ground->kv_dtype, facts->key_dim);
    const bool of_keys = which == 0 || facts->values_in_keys;
    const uint64_t after_keys = apr_align_up((uint64_t)(key_bytes * facts->n_heads * n_cells), 64);
    const bool in_ring = facts->kind != APR_STATE_KV || ground->pages == NULL;
    return (apr_cache){.dtype = ground->kv_dtype,
                       .data = state_bytes(ground, state) + (of_keys ? 0 : after_keys),
                       .pages = in_ring ? NULL : ground->pages,
                       .pages_stride = in_ring ? 0 : ground->pages_stride,
                       .slots = in_ring ? ground->slots : NULL,
                       .slot_bytes = in_ring ? apr_op_memory_slot_bytes(ground, state) : 0,
                       .n_cells = n_cells,
                       .row_bytes = of_keys ? key_bytes : apr_row_bytes(ground->kv_dtype, facts->value_dim)};
}

apr_op_memory_rows apr_op_memory_rows_of(const apr_op_memory *ground, int value)
{
    if (ground->program->values[value].is_logits) return (apr_op_memory_rows){ground->first_row, ground->n_rows};
    return (apr_op_memory_rows){0, ground->n_tokens};
}
