/* runtime/program/fusion.h - which operations of a single token a device runs as one.
 *
 * A token's time is spent on weights; norms, activations and sums between two products would cost as much again, a launch each. So the end
 * of a product does them, and leaves its result in the form that the next product multiplies ("planes": the numbers as pairs of bytes,
 * kernels/cuda/ops/planes.cuh). A step is an operation as it stands, a value brought into planes, or products with what ends them:
 *
 *     inputs:    norm(h) -> planes                                       where no product made h
 *     products:  up to three linears of the same inputs and type         q, k, v
 *                two linears and their gated unit                        gate, up, glu -> planes
 *                a linear and its sum with the residual                  o, add -> h, planes of norm(h)
 *
 * A norm is absorbed when products alone read it: its gains go into the planes, its division is left to the products that read them.
 * Every operation is in exactly one step (`replaces`), and a step needs only what steps before it made. Values that only products read are
 * never made as floats. */
#ifndef APR_RUNTIME_FUSION_H
#define APR_RUNTIME_FUSION_H

#include "runtime/program/program.h"

typedef enum { APR_FUSED_OPERATION, APR_FUSED_INPUTS, APR_FUSED_PRODUCTS } apr_fused_kind;
enum { APR_FUSED_PRODUCTS_MAX = 3 };

/* Operations, values and planes are indices; -1 is none. */
typedef struct apr_fused {
    apr_fused_kind kind;
    int op;      /* OPERATION */
    int value;   /* INPUTS: the float32 value that is read */
    int inputs;  /* PRODUCTS: the planes that are multiplied */
    int divided; /* PRODUCTS: the norm whose division these planes still lack */
    int linears[APR_FUSED_PRODUCTS_MAX];
    int n_linears;
    int glu, add; /* what ends the products */
    bool keeps;   /* PRODUCTS: the result is made as float32, too */
    int planes;   /* INPUTS, PRODUCTS: planes that are left */
    int norm;     /* the norm whose gains they have; INPUTS: it is applied whole */
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

/* streams[n_ops]: of a linear that the device multiplies from planes, a number that is the same where products may go together (a type);
 * of all others 0. A fusion without any is every operation by itself. Zeroed or failed ones may be closed. */
apr_status apr_fuse(apr_fusion *fusion, const apr_program *program, const int *streams, apr_error *err);
void apr_fusion_close(apr_fusion *fusion);

#endif
