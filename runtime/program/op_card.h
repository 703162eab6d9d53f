/* runtime/program/op_card.h - what an operation is to everybody but its kernels: one card each, in ops/op_NAME.c.
 *
 * The program learns from it what becomes of a weight, the planner where the output may lie and what the operation works in, the
 * session how indices become pointers, a comparison how far two backends may be apart, a message what was being done. Nobody else
 * tells one kind from another. A variant of an operation is a parameter of it.
 *
 * So an operation is: its line and its arguments in kernels/ops.h, a function in each backend's table, and its card. */
#ifndef APR_RUNTIME_OP_CARD_H
#define APR_RUNTIME_OP_CARD_H

#include "runtime/program/ground.h"

/* What an operation may differ by, and why. */
typedef struct apr_parity_bound {
    double peak, relative; /* INFINITY: not judged */
    const char *reason;
} apr_parity_bound;

/* One of op.weight[]. */
typedef struct apr_card_weight {
    const char *what;   /* "matrix", "bias"; NULL: there is no such argument */
    apr_weight_use use; /* one */
    bool optional;      /* the operation may go without */
} apr_card_weight;

typedef enum { APR_STATE_UNUSED, APR_STATE_READ, APR_STATE_WRITTEN, APR_STATE_READ_AND_WRITTEN } apr_state_use;

/* How rows of several sequences are computed so that each is what it is alone: row by row is the same anyway; each by itself, where
 * positions and states are in play; some at a time, where the sums of a product are in another order for more. A device takes all rows at
 * once, apart (apr_ground). */
typedef enum { APR_STEP_TOGETHER, APR_STEP_EACH, APR_STEP_SOME } apr_step_way;

/* A number that an operation is told, and what it is called: two models that differ in one are different models. */
typedef enum { APR_FACT_WHOLE, APR_FACT_REAL, APR_FACT_CHOICE, APR_FACT_FLAG } apr_fact_type; /* int64_t, float, an enum, bool */

typedef struct apr_op_fact {
    const char *what;
    apr_fact_type type;
    size_t offset; /* into apr_op_args */
} apr_op_fact;

double apr_op_fact_of(const apr_op *op, const apr_op_fact *fact);

/* What the size of a workspace depends on, besides the operation. */
typedef struct apr_op_sizes {
    int64_t n_batch, n_logits;      /* tokens at a time; rows of logits */
    const apr_dtype *weight_dtypes; /* [n_weights]; NULL: none is F16 */
    size_t tile_bytes;              /* of FP16 weights decoded at a time, at most */
    int n_multiprocessors;          /* of the device */
} apr_op_sizes;

typedef struct apr_op_card {
    apr_op_kind kind;
    int n_inputs;
    bool in_place;  /* the output may take the first input's place, when that is not needed any more */
    bool reads_ids; /* of the tokens */
    bool has_rope;  /* a rotary table */
    apr_state_use state;
    apr_step_way step;
    apr_card_weight weights[APR_OP_MAX_WEIGHTS]; /* op.weight[], in this order */

    apr_parity_bound bound;      /* between two backends: peaks in units of the row's root mean square */
    apr_parity_bound fp16_bound; /* the same where products round their inputs to FP16; without a reason: no other */
    double position_error;       /* what two models' parameters may differ by (frequencies), relative, for each position */

    const apr_op_fact *facts; /* the last is without a name; NULL: none */
    /* Workspace: floats of each thread on the host, bytes on a device. NULL: none. */
    size_t (*host_floats)(const apr_program *program, const apr_op *op);
    size_t (*host_shared)(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes); /* floats of all threads together */
    size_t (*device_bytes)(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes);
    /* Fills what op->args leaves open: pointers, and what depends on the tokens. Use apr_op_bind. */
    void (*bind)(const apr_ground *ground, const apr_op *op, apr_op_args *args);
    /* What runs, in words: types, dimensions, and the weight's name, which says the layer. */
    void (*describe)(const apr_op_args *args, char *text, size_t n_bytes);
} apr_op_card;

extern const apr_op_card *const apr_op_cards[APR_OP_COUNT];

#define X(ID, id, name) extern const apr_op_card apr_card_##id;
APR_OP_LIST(X)
#undef X

/* The operation's arguments, valid while the ground stays as it is. */
void apr_op_bind(const apr_ground *ground, const apr_op *op, apr_op_args *args);
void apr_op_describe(apr_op_kind kind, const apr_op_args *args, char *text, size_t n_bytes);

/* The first operation that the backend cannot run, or NULL. */
const apr_op *apr_program_missing_op(const apr_program *program, const apr_backend *backend);

#endif
