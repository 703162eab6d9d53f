/* runtime/plan/placement.h - computes the offsets of values, vectors and states in a plan; used by plan.c. */
#ifndef APR_RUNTIME_PLACEMENT_H
#define APR_RUNTIME_PLACEMENT_H

#include "formats/base/bytes.h"
#include "runtime/plan/plan.h"

/* A program and the part of it that runs at one place. partition NULL: all of it. */
typedef struct apr_program_part {
    const apr_program *program;
    const apr_partition *partition;
    int place;
} apr_program_part;

/* Sets value_offsets and activation_width. Each value takes the smallest gap between the values that are alive with it. It lives from
 * the operation that computes it (or before which it is copied here) to the last operation that reads it (or before which it is copied
 * from here). */
apr_status apr_place_activations(apr_plan *plan, const apr_program_part *part, apr_error *err);
/* Sets vector_offsets and rope_offsets; *n_floats is the total. */
apr_status apr_place_vectors(apr_plan *plan, const apr_program_part *part, const uint64_t *weight_bytes, int64_t *n_floats, apr_error *err);
/* Sets state_offsets, state_cells, state_strides, states_bytes, and the offsets of what follows the states. Uses the plan's n_ctx,
 * n_batch, n_sequences and kv_dtype. */
apr_status apr_place_states(apr_plan *plan, const apr_program_part *part, const apr_plan_options *options, apr_error *err);

int64_t apr_state_cells(const apr_state *state, int64_t n_ctx, int64_t n_batch);
/* KV pages of several sequences; 0 for one sequence. kv_cells: as in apr_plan_options. */
int64_t apr_state_pages(int64_t n_sequences, int64_t n_ctx, int64_t kv_cells);
/* Bytes for all sequences. */
uint64_t apr_states_bytes(const apr_plan *plan, const apr_plan_options *options, const apr_state *state, int64_t n_ctx, int64_t n_batch);
/* For several sequences on a device, otherwise 0: the buffer in which pages of one sequence are gathered in order; the batch table. */
uint64_t apr_gathered_bytes(const apr_plan *plan, const apr_program_part *part, int64_t n_ctx);
uint64_t apr_batch_table_plan_bytes(const apr_plan *plan, int64_t n_ctx);
/* Bytes for one sequence; keys and values are each padded to 64. */
uint64_t apr_state_bytes(const apr_state *state, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch);

#endif
