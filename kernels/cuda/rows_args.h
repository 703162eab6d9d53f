/* rows_args.h - products of the rows of a step (up to 64 tokens, each of a sequence of its own, or a prompt's), and what ends them: what a
 * device is given.
 *
 *     STORE  out = y                       y = weight x + bias of each part; x: inputs that lie in a slot
 *     ADD    out = residual + y
 *     GLU    out = activation(y of part 0) * (y of part 1)
 *     each, where a slot is left: inputs of the products behind, of out, or of its norm:
 *            out / sqrt(mean(out^2) + eps) * (gain + gain_offset)
 *
 * The bits are those of the operations one after another, but that the order of a product's sums follows from all parts together. Slots lie
 * in the workspace, in front of what products share their sums in; what else uses the workspace writes over them. */
#ifndef APR_KERNELS_CUDA_ROWS_ARGS_H
#define APR_KERNELS_CUDA_ROWS_ARGS_H

#include "kernels/cuda/flow_args.h"

enum {
    APR_ROWS_SLOTS = 2,
    APR_ROWS_MOST = 64, /* tokens: those that products of tokens abreast are preferred for */
};

/* Where slots are, and what is left in one. */
typedef struct apr_rows_room {
    apr_workspace work;
    int64_t widest; /* of all that is left in slots */
    bool bfloats;   /* products behind multiply BF16 matrices, all of them */
    bool wide;      /* or ones of types that warpgroups multiply (apr_abreast_may_be_wide), all of them */
} apr_rows_room;

typedef struct apr_rows_left {
    int slot; /* -1: none */
    bool norm;
    float eps, gain_offset;
    const float *gain; /* [width] or NULL */
} apr_rows_left;

typedef struct apr_rows_args {
    apr_rows_room room;
    apr_flow_ending ending;
    int64_t n_tokens, n_in;
    int slot; /* of the inputs */
    int n_parts;
    apr_flow_part parts[APR_FLOW_PARTS]; /* of one type; out: [n_tokens, rows], whatever the ending: sums pass through there */
    apr_glu_shape glu;
    const float *residual; /* [n_tokens, rows]; may be out */
    float *out;            /* ADD, GLU; NULL: nobody reads it. Not NULL where a norm is left. STORE: part 0's counts */
    apr_rows_left left;    /* STORE: of one part only */
    /* STORE, three parts, nothing left: they are the queries, keys and values that this turn reads, and it is done, too. NULL: none. Its
     * q.out does not overlap with what it reads, but for the queries themselves. */
    const apr_turn_args *turn;
} apr_rows_args;

/* A value, brought into a slot. */
typedef struct apr_rows_inputs {
    apr_rows_room room;
    int64_t n_tokens, width;
    const float *x;
    float *out; /* [n_tokens, width] the same as float32; NULL: not wanted. May be x */
    apr_rows_left left;
} apr_rows_inputs;

#endif
