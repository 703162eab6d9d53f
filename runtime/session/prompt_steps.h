/* runtime/session/prompt_steps.h - which operations of many tokens a device runs as one.
 *
 * Products of a prompt take what tensor cores take; what stands between them goes to memory and comes back. So a step is products of one
 * input with what stands right in front of them and right behind (kernels/cuda/prompt_args.h says which ways there are):
 *
 *     [sum, norm | norm] linears                                   STORE
 *     [sum, norm | norm] q, k, v, [norms of heads,] ropes, kv store   TURN
 *     [sum, norm | norm] gate, up, glu                             UNIT, of which the next step is the only reader
 *     linear                                                       LEAVE: the next step's sum is its only reader
 *
 * A step is a run of neighbouring operations, and only where nobody else reads what it does not make. All others are run by themselves. */
#ifndef APR_RUNTIME_PROMPT_STEPS_H
#define APR_RUNTIME_PROMPT_STEPS_H

#include "kernels/cuda/prompt_args.h"
#include "runtime/program/program.h"

/* Operations are indices; -1 is none. */
typedef struct apr_prompt_step {
    size_t first, end; /* of the operations that it is */
    apr_prompt_ending ending;
    int add, norm;
    bool lacks_scale; /* the step before is LEAVE */
    bool is_left;     /* the step before is UNIT */
    int linears[APR_PROMPT_PARTS];
    int n_linears;
    int glu;
    float row_sums[2];                  /* UNIT: what the device finds of its products' weights, see apr_prompt_args */
    int head_norms[2], ropes[2], store; /* TURN: of query and key; a norm may be none */
} apr_prompt_step;

typedef struct apr_prompt_steps {
    apr_prompt_step *steps;
    size_t n;
} apr_prompt_steps;

/* What the device has of the program's weights: a slot's vector may not be there. */
typedef struct apr_prompt_can {
    const bool *has; /* [n_weights] */
    bool turns;      /* false: without TURN */
} apr_prompt_can;

apr_status apr_prompt_find_steps(apr_prompt_steps *steps, const apr_program *program, const apr_prompt_can *can, apr_error *err);
void apr_prompt_close_steps(apr_prompt_steps *steps); /* zeroed or failed ones may be closed */

#endif
