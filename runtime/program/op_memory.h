/* runtime/program/op_memory.h - the memory of a running program: maps an operation's indices to pointers.
 *
 * A session fills this struct for each operation. The specs of operations (op_spec.h) read it and know nothing else of a session.
 * Offsets come from the plan. Pointers are to host memory, or to device memory when the program runs on a device. Tensor structs stay on
 * the host. */
#ifndef APR_RUNTIME_OP_MEMORY_H
#define APR_RUNTIME_OP_MEMORY_H

#include "runtime/program/program.h"

typedef struct apr_op_memory {
    const apr_program *program;

    /* the current tokens */
    int64_t position, n_tokens;
    int64_t first;              /* row of the first token in each value, where these tokens are only some of the batch */
    int64_t sequence;           /* the sequence of the tokens */
    const int32_t *pages;       /* pages of that sequence, see apr_cache; NULL: there is only one sequence */
    const int64_t *position_at; /* position in device memory, where recorded kernels (a CUDA graph) read it; NULL: not used */
    bool per_sequence;          /* device: each token belongs to another sequence, at position_at[token]; position: the largest one */
    const int32_t *slots;       /* sequence of each token; pages: those of the first sequence */
    int64_t pages_stride;       /* from the pages of one sequence to those of the next */
    uint8_t *gathered;          /* device: see apr_attend_args */
    int64_t n_gathered;
    int64_t first_row, n_rows; /* the tokens whose logits are computed */
    const int32_t *ids;        /* [n_tokens], in memory that the operation can read */

    /* values: value v starts at value_offsets[v] * n_batch floats in `activations` */
    float *activations, *logits;
    const int64_t *value_offsets;
    int64_t n_batch;

    /* weights: float offsets into `vectors` (-1: absent), tensors by slot (NULL: absent) */
    const float *vectors;
    const int64_t *vector_offsets, *rope_offsets;
    const apr_tensor *const *tables;   /* as stored */
    const apr_tensor *const *matrices; /* as stored, or FP16 copies; experts as an array of tensors, on a device as one stack */

    /* states: byte offsets, and the number of cells of key/value states */
    uint8_t *states;
    const uint64_t *state_offsets;
    const int64_t *state_cells;
    const uint64_t *state_strides; /* bytes from one sequence's state to the next; NULL, or 0 for paged states */
    apr_dtype kv_dtype;

    float *host_rows; /* output of an operation that runs on the host for a device; NULL: the value's own memory */
    apr_workspace work;
    float *shared; /* scratch memory shared by all threads of an operation, or NULL */
} apr_op_memory;

float *apr_op_memory_value(const apr_op_memory *ground, int value);
/* NULL for slot -1, and for an absent optional weight. */
const float *apr_op_memory_vector(const apr_op_memory *ground, int slot);
/* The matrices of the experts in a slot; NULL for slot -1, or if they are absent. */
const apr_tensor *apr_op_memory_experts(const apr_op_memory *ground, int slot);
/* Bytes from one sequence's state to the next, if the tokens belong to different sequences; otherwise 0. */
uint64_t apr_op_memory_slot_bytes(const apr_op_memory *ground, int state);
/* A state of plain numbers. */
float *apr_op_memory_state(const apr_op_memory *ground, int state);
const float *apr_op_memory_frequencies(const apr_op_memory *ground, int rope);
/* Keys (which = 0) or values (1) of a state. */
apr_cache apr_op_memory_cache(const apr_op_memory *ground, int state, int which);

/* The rows of the batch that a value has: all tokens, or those whose logits are computed. */
typedef struct apr_op_memory_rows {
    int64_t first, n;
} apr_op_memory_rows;
apr_op_memory_rows apr_op_memory_rows_of(const apr_op_memory *ground, int value);

#endif
