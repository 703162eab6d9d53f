/* runtime/program/ground.h - where everything of a program lies while it runs: an operation's indices become pointers here.
 *
 * A session fills it for each operation; the operations' cards (op_card.h) read it and know nothing else of a session. Offsets are
 * the plan's. Pointers are to the host's memory, or to a device's when the program runs there (tensor structs stay on the host). */
#ifndef APR_RUNTIME_GROUND_H
#define APR_RUNTIME_GROUND_H

#include "runtime/program/program.h"

typedef struct apr_ground {
    const apr_program *program;

    /* the tokens that are run now */
    int64_t position, n_tokens;
    int64_t first;              /* rows before theirs in each value, where they are not all that are evaluated together */
    int64_t sequence;           /* whose they are */
    const int32_t *pages;       /* of that one, see apr_cache; NULL: there is one sequence */
    const int64_t *position_at; /* the same in a device's own memory, from where what was recorded reads it; NULL: it does not */
    bool apart;                 /* on a device: each token is of a sequence of its own, at position_at[token]; position: the largest */
    const int32_t *slots;       /* of each, which sequence; pages: of the first one, ... */
    int64_t pages_stride;       /* ... from one's to the next's */
    uint8_t *ordered;           /* on a device: see apr_attend_args */
    int64_t n_ordered;
    int64_t first_row, n_rows; /* of them, those whose logits are computed */
    const int32_t *ids;        /* [n_tokens], where the operation can read them */

    /* values: value_offsets[v] floats a token, times n_batch, into the activations */
    float *activations, *logits;
    const int64_t *value_offsets;
    int64_t n_batch;

    /* weights: floats into the vectors (-1: not there), tensors by slot (NULL: not there) */
    const float *vectors;
    const int64_t *vector_offsets, *rope_offsets;
    const apr_tensor *const *tables;   /* as they are stored */
    const apr_tensor *const *matrices; /* the same, or FP16 copies; of experts each, on a device all in one stack */

    /* states: bytes of each, and cells of those that are keys and values */
    uint8_t *states;
    const uint64_t *state_offsets;
    const int64_t *state_cells;
    const uint64_t *state_strides; /* from one sequence's to the next; NULL, or 0 of those in pages */
    apr_dtype kv_dtype;

    float *host_rows; /* of an operation that runs on the host for a device: where it puts what it makes; NULL: where the value lies */
    apr_workspace work;
    float *shared; /* what all threads of an operation share, or NULL */
} apr_ground;

float *apr_ground_value(const apr_ground *ground, int value);
/* NULL for slot -1, and for an optional one that is not there. */
const float *apr_ground_vector(const apr_ground *ground, int slot);
/* The matrices of a slot's experts, or NULL for slot -1 and where they are not. */
const apr_tensor *apr_ground_experts(const apr_ground *ground, int slot);
/* Where the sequence's state begins; of those in pages, all sequences'. */
uint8_t *apr_ground_state_bytes(const apr_ground *ground, int state);
/* From one sequence's to the next's, where rows are apart; else 0. */
uint64_t apr_ground_slot_bytes(const apr_ground *ground, int state);
/* A state that is numbers. */
float *apr_ground_state(const apr_ground *ground, int state);
const float *apr_ground_frequencies(const apr_ground *ground, int rope);
/* Keys (which = 0) or values (1) of a state. */
apr_cache apr_ground_cache(const apr_ground *ground, int state, int which);

/* The rows of the batch that a value is made of: all tokens, or those whose logits are computed. */
typedef struct apr_ground_rows {
    int64_t first, n;
} apr_ground_rows;
apr_ground_rows apr_ground_rows_of(const apr_ground *ground, int value);

#endif
