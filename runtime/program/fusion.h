/* runtime/program/fusion.h - which operations of a single token a device runs as one.
 *
 * A token's time is spent on weights; norms, activations and sums between two products would cost as much again, a launch each. So the end
 * of a product does them, and leaves its result in the form that the next product multiplies ("planes": the numbers as pairs of bytes,
 * kernels/cuda/ops/planes.cuh). A step is an operation as it stands, a value brought into planes, or products with what ends them:
 *
 *     inputs:    norm(h) -> planes                                       where no product made h
 *                norm(h) -> planes and float32                           where others than products read it, too
 *     turn:      norm of heads, rope of q, the same of k, kv store       one step, behind the products that make q, k, v
 *     attend:    attend(q) -> o, planes of o                             where products alone read it
 *     experts:   the chosen experts, and their sum with the residual     behind their routes; ends as products do
 *     products:  up to three linears of the same inputs and type         q, k, v
 *                two linears and their gated unit                        gate, up, glu -> planes
 *                a linear and its sum with the residual                  o, add -> h, planes of norm(h)
 *
 * A norm is absorbed when products alone read it: its gains go into the planes, its division is left to the products that read them.
 * Every operation is in exactly one step, and a step needs only what steps before it made. Values that only products read are
 * never made as floats. */
#ifndef APR_RUNTIME_FUSION_H
#define APR_RUNTIME_FUSION_H

#include "runtime/program/program.h"

typedef enum {
    APR_FUSED_OPERATION,
    APR_FUSED_INPUTS,
    APR_FUSED_PRODUCTS,
    APR_FUSED_TURN,
    APR_FUSED_ATTEND,
    APR_FUSED_EXPERTS
} apr_fused_kind;
enum { APR_FUSED_PRODUCTS_MAX = 3 };

/* Operations, values and planes are indices; -1 is none. */
typedef struct apr_fused {
    apr_fused_kind kind;
    int op;      /* OPERATION, ATTEND, EXPERTS */
    int store;   /* TURN, and ATTEND that turns as well: the kv store */
    int value;   /* INPUTS: the float32 value that is read */
    int inputs;  /* PRODUCTS, EXPERTS: the planes that are multiplied */
    int divided; /* PRODUCTS, EXPERTS: the norm whose division these planes still lack */
    int linears[APR_FUSED_PRODUCTS_MAX];
    int n_linears;
    int glu, add;                /* what ends the products; EXPERTS: add alone */
    bool keeps;                  /* INPUTS, PRODUCTS, EXPERTS: the result is made as float32, too */
    int planes;                  /* INPUTS, PRODUCTS, ATTEND, EXPERTS: planes that are left */
    int norm;                    /* the norm whose gains they have; INPUTS: it is applied whole */
    int head_norms[2], ropes[2]; /* with a store: of query and key; a norm may be none */
} apr_fused;

typedef struct apr_planes {
    int64_t width;
    int first_step, last_step; /* written, last read */
} apr_planes;

typedef struct apr_fusion {
    apr_fused *steps;
    apr_planes *planes;
    size_t n_steps, n_planes;
} apr_fusion;

/* What the device can do of a single token, by operation: with streams of a linear that it multiplies from planes, a number that is the
 * same where products may go together (a type), of all others 0; with turns of a kv store that it does together with the rotation before;
 * with experts of those that it multiplies from planes. Without any stream every operation is by itself. Zeroed or failed fusions may be
 * closed. */
typedef struct apr_fusible {
    const int *streams;  /* [n_ops] */
    const bool *turns;   /* [n_ops] or NULL */
    const bool *experts; /* [n_ops] or NULL */
} apr_fusible;
apr_status apr_fuse(apr_fusion *fusion, const apr_program *program, const apr_fusible *can, apr_error *err);
void apr_fusion_close(apr_fusion *fusion);

#endif
