/* parts.h - the few parts into which the lines of a plan are summed up: for a summary on a terminal, and for bars in a picture. */
#ifndef APR_ENGINE_PLAN_PARTS_H
#define APR_ENGINE_PLAN_PARTS_H

#include "runtime/plan/plan.h"

typedef enum {
    APR_PART_WEIGHTS,
    APR_PART_KV,
    APR_PART_RECURRENT, /* states of recurrent layers */
    APR_PART_ACTIVATIONS,
    APR_PART_WORKSPACE, /* with logits and tables of the batch */
    APR_PART_CUDA,      /* context, libraries, recorded graphs, rounding of allocations */
    APR_PART_FREE,      /* headroom, and what the system uses of a shared memory */
    APR_PART_ON_HOST,   /* buffers of a GPU's run in the host's memory */
    APR_PLAN_PARTS
} apr_plan_part;

extern const char *const apr_plan_part_names[APR_PLAN_PARTS];

/* Every line belongs to one part. */
apr_plan_part apr_plan_part_of(const apr_plan_line *line);

#endif
