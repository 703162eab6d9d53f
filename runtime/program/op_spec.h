/* runtime/program/op_spec.h - the spec of an operation: everything about it except its kernels. Each operation has one, in ops/op_NAME.c.
 *
 * The program reads from it how weights are used, the planner workspace sizes and whether the output may be in place, the session how
 * indices become pointers, comparisons the error bound between backends, and messages a description. No other code distinguishes kinds of
 * operations. Variants of an operation are parameters of it.
 *
 * So an operation consists of its line and arguments in kernels/ops.h, a function in each backend's table, and its spec. */
#ifndef APR_RUNTIME_OP_SPEC_H
#define APR_RUNTIME_OP_SPEC_H

#include "runtime/program/op_memory.h"

/* The allowed difference between two results, and the reason for it. */
typedef struct apr_parity_bound {
    double peak, relative; /* INFINITY: not checked */
    const char *reason;
} apr_parity_bound;

/* One of op.weight[]. */
typedef struct apr_spec_weight {
    const char *what;   /* "matrix", "bias"; NULL: there is no such argument */
    apr_weight_use use; /* exactly one use */
    bool optional;      /* the operation can run without it */
} apr_spec_weight;

typedef enum { APR_STATE_UNUSED, APR_STATE_READ, APR_STATE_WRITTEN, APR_STATE_READ_AND_WRITTEN } apr_state_use;

/* How an operation is run for rows of several sequences so that each gets the result it would get alone. TOGETHER: rows are independent.
 * EACH: one sequence at a time, because positions or states matter. SOME: a few rows at a time, because more rows would change the order
 * of a product's sums. A device runs all rows at once, see apr_op_memory.per_sequence. */
typedef enum { APR_BATCH_TOGETHER, APR_BATCH_PER_SEQUENCE, APR_BATCH_FEW_ROWS } apr_batch_mode;

/* A parameter of an operation, and its name in messages: two models that differ in one are different models. */
typedef enum { APR_FACT_WHOLE, APR_FACT_REAL, APR_FACT_CHOICE, APR_FACT_FLAG } apr_fact_type; /* int64_t, float, an enum, bool */

typedef struct apr_op_fact {
    const char *what;
    apr_fact_type type;
    size_t offset; /* into apr_op_args */
} apr_op_fact;

double apr_op_fact_of(const apr_op *op, const apr_op_fact *fact);

/* What a workspace's size depends on, in addition to the operation. */
typedef struct apr_op_sizes {
    int64_t n_batch, n_logits;      /* tokens per batch; rows of logits */
    const apr_dtype *weight_dtypes; /* [n_weights]; NULL: none is F16 */
    size_t tile_bytes;              /* upper bound of FP16 weights decoded at a time */
    int n_multiprocessors;          /* of the device */
} apr_op_sizes;

typedef struct apr_op_spec {
    apr_op_kind kind;
    int n_inputs;
    bool in_place;  /* the output may overwrite the first input, if that is not used later */
    bool reads_ids; /* reads the tokens' ids */
    bool has_rope;  /* reads a rotary table */
    apr_state_use state;
    apr_batch_mode step;
    apr_spec_weight weights[APR_OP_MAX_WEIGHTS]; /* op.weight[], in this order */

    apr_parity_bound bound;      /* between two backends; peaks are relative to the row's root mean square */
    apr_parity_bound fp16_bound; /* the same where products round their inputs to FP16; no reason: use `bound` */
    double position_error;       /* relative difference of frequencies that two models may have, per position */

    const apr_op_fact *facts; /* an entry without a name ends them; NULL: none */
    /* Workspace: floats per thread on the host, bytes on a device. NULL: none. */
    size_t (*host_floats)(const apr_program *program, const apr_op *op);
    size_t (*host_shared)(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes); /* floats shared by all threads */
    size_t (*device_bytes)(const apr_program *program, const apr_op *op, const apr_op_sizes *sizes);
    /* Writes why a device cannot run the operation with these arguments: the rest of a sentence that begins with its layer. Returns false
     * where it can. NULL: it always can. */
    bool (*exceeds_device)(const apr_op *op, char *why, size_t n_bytes);
    /* Sets the pointers and token-dependent arguments that op->args leaves open. Call it through apr_op_bind. */
    void (*bind)(const apr_op_memory *ground, const apr_op *op, apr_op_args *args);
    /* Describes the running operation: types, dimensions, and the weight's name, which includes the layer. NULL: "add (f32, 12 tokens)". */
    void (*describe)(const apr_op_args *args, char *text, size_t n_bytes);
} apr_op_spec;

extern const apr_op_spec *const apr_op_specs[APR_OP_COUNT];

#define X(ID, id, name) extern const apr_op_spec apr_spec_##id;
APR_OP_LIST(X)
#undef X

/* The operation's arguments, valid as long as the ground is unchanged. */
void apr_op_bind(const apr_op_memory *ground, const apr_op *op, apr_op_args *args);
void apr_op_describe(apr_op_kind kind, const apr_op_args *args, char *text, size_t n_bytes);

/* The first operation that the backend cannot run, or NULL. */
const apr_op *apr_program_missing_op(const apr_program *program, const apr_backend *backend);

#endif
