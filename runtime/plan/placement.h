/* runtime/plan/placement.h - the parts of a plan that say where things lie; for plan.c. */
#ifndef APR_RUNTIME_PLACEMENT_H
#define APR_RUNTIME_PLACEMENT_H

#include "formats/base/bytes.h"
#include "runtime/plan/plan.h"

/* A program, and which part of it is here: partition NULL, all. */
typedef struct apr_part {
    const apr_program *program;
    const apr_partition *partition;
    int place;
} apr_part;

/* value_offsets and activation_width: each value takes the smallest hole between the values alive with it, from the operation that makes
 * it, or before which it is copied here, to the last that reads it or before which it is copied from here. */
apr_status apr_place_activations(apr_plan *plan, const apr_part *part, apr_error *err);
/* vector_offsets, rope_offsets; n_floats of all. */
apr_status apr_place_vectors(apr_plan *plan, const apr_part *part, const uint64_t *weight_bytes, int64_t *n_floats, apr_error *err);
/* state_offsets, state_cells, state_strides, states_bytes, and what lies behind the states, for the plan's n_ctx, n_batch, n_sequences and
 * kv_dtype. */
apr_status apr_place_states(apr_plan *plan, const apr_part *part, const apr_plan_options *options, apr_error *err);

int64_t apr_state_cells(const apr_state *state, int64_t n_ctx, int64_t n_batch);
/* Pages of several sequences; 0 for one. cells: as apr_plan_options.kv_cells. */
int64_t apr_state_pages(int64_t n_sequences, int64_t n_ctx, int64_t kv_cells);
/* All sequences' bytes. */
uint64_t apr_states_bytes(const apr_plan *plan, const apr_plan_options *options, const apr_state *state, int64_t n_ctx, int64_t n_batch);
/* Of several sequences on a device, else 0: where the pages of one are put in order, the table of a step. */
uint64_t apr_ordered_bytes(const apr_plan *plan, const apr_part *part, int64_t n_ctx);
uint64_t apr_step_bytes(const apr_plan *plan, int64_t n_ctx);
/* One sequence's bytes; keys and values are each padded to 64. */
uint64_t apr_state_bytes(const apr_state *state, apr_dtype kv_dtype, int64_t n_ctx, int64_t n_batch);

#endif
