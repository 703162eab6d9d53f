/* runtime/session/prompt_steps.h - which operations of many tokens a device runs as one fused step.
 *
 * A prompt's products take their inputs in the type and layout of the tensor cores. Unfused, each operation between them reads and
 * writes memory. So a step is the products of one input, fused with the operations right before them (prologue) and right after them
 * (epilogue). kernels/cuda/prompt_args.h defines the four epilogues:
 *
 *     [sum, norm | norm] linears                                      STORE
 *     [sum, norm | norm] q, k, v, [norms of heads,] ropes, kv store   TURN: the Q/K norm, rope and KV write
 *     [sum, norm | norm] gate, up, glu                                UNIT: only the next step reads the result
 *     linear                                                          LEAVE: only the next step's sum reads the result
 *
 * A step is a run of adjacent operations. All values that it does not store must be read inside it only. All other operations run one by
 * one. */
#ifndef APR_RUNTIME_PROMPT_STEPS_H
#define APR_RUNTIME_PROMPT_STEPS_H

#include "kernels/cuda/prompt_args.h"
#include "runtime/program/program.h"

/* Operations are indices into the program; -1: none. */
typedef struct apr_prompt_step {
    size_t first, end; /* operations [first, end) */
    apr_prompt_epilogue epilogue;
    int add, norm;
    bool addend_is_unscaled; /* the step before is LEAVE */
    bool input_is_glu;       /* the step before is UNIT */
    int linears[APR_PROMPT_PARTS];
    int n_linears;
    int glu;
    float row_sums[2];                  /* UNIT: sums of its weights, computed by the device; see apr_prompt_args */
    int head_norms[2], ropes[2], store; /* TURN: of query and key; a norm may be -1 */
} apr_prompt_step;

typedef struct apr_prompt_steps {
    apr_prompt_step *steps;
    size_t n;
} apr_prompt_steps;

/* What the device supports for this program. */
typedef struct apr_prompt_support {
    const bool *has; /* [n_weights] the slot's vector is on the device */
    bool turns;      /* TURN may be used */
} apr_prompt_support;

apr_status apr_prompt_find_steps(apr_prompt_steps *steps, const apr_program *program, const apr_prompt_support *can, apr_error *err);
void apr_prompt_close_steps(apr_prompt_steps *steps); /* zeroed or failed ones may be closed */

#endif
