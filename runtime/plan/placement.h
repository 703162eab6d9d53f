/* runtime/plan/placement.h - computes the offsets of values in a plan; used by plan.c. */
#ifndef APR_RUNTIME_PLACEMENT_H
#define APR_RUNTIME_PLACEMENT_H

#include "runtime/plan/plan.h"

/* A program and the part of it that runs at one place. partition NULL: all of it. */
typedef struct apr_program_part {
    const apr_program *program;
    const apr_partition *partition;
    int place;
} apr_program_part;

/* Floats of a row of `width` numbers in memory: offsets are multiples of 64 bytes. */
static inline int64_t apr_rounded_width(int64_t width) { return (width + 15) / 16 * 16; }

/* Sets value_offsets and activation_width. Each value takes the smallest gap between the values that are alive with it. It lives from
 * the operation that computes it (or before which it is copied here) to the last operation that reads it (or before which it is copied
 * from here). */
apr_status apr_place_activations(apr_plan *plan, const apr_program_part *part, apr_error *err);

#endif
