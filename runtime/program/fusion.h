/* runtime/program/fusion.h - fuses a program's operations for a device: those of one token, of rows of several sequences, or of a prompt.
 *
 * Decoding is limited by reading the weights. Norms, activations and sums between two products would each cost a kernel launch, and
 * together as much time again. So a product's epilogue computes them, and writes the result in the form that the next product multiplies:
 * int16 activations (kernels/cuda/common/activations_i16.cuh), split into two int8 planes, with a scale per 16 numbers. A step is an
 * operation that is not fused, a value that is converted to activations, or products with their epilogue:
 *
 *     inputs:       norm(h) -> activations                              where no product computes h
 *                   norm(h) -> activations and float32                  where other operations read it as well
 *                   norm(a + b) -> activations, a + b -> float32        where the sum is not a product's; of a token
 *     QKV epilogue: Q/K norm, rope of q and k, kv store                 one step after the products that compute q, k, v; of rows part
 *                                                                       of these, where only q, k, v are computed by them
 *     attend:       attend(q) -> o, activations of o                    where only products read o
 *     latent query: rope, slices, a product of each head, join          before attention to latents; also in a prompt and in rows
 *     latent store: slices, norm, rope, join, kv store                  the same, part of a query right before it; both are runs of
 *                                                                       adjacent operations
 *     experts:      the chosen experts, and their sum with the residual after their routes; ends like products. Of rows: where their
 *                                                                       sum is normed for the next products
 *     products:     up to three linears of the same inputs and type     q, k, v
 *                   two linears and their gated unit                    gate, up, glu -> activations
 *                   a linear and its sum with the residual              o, add -> h, activations of norm(h); of rows also norm(h) alone
 *
 * A norm is absorbed when only products read it: its weights are multiplied into the activations, and the products that read them divide by
 * its root mean square. Every operation is in exactly one step, and a step needs only results of earlier steps. Values that only
 * products read are never written as float32.
 *
 * A prompt's products take their inputs in the type and layout of the tensor cores (kernels/cuda/prompt_args.h). Its steps are runs of
 * adjacent operations, which read and write no memory in between:
 *
 *     prompt:       [[sum,] norm,] up to three linears                  [sum,] norm, or right after a GLU
 *                   ..., gate, up, glu                                  only the next step reads the result
 *                   ..., q, k, v, [head norms,] ropes, kv store
 *                   ..., linear                                         only the next step's sum reads the result */
#ifndef APR_RUNTIME_FUSION_H
#define APR_RUNTIME_FUSION_H

#include "runtime/program/program.h"

typedef enum {
    APR_FUSED_OPERATION,
    APR_FUSED_INPUTS,
    APR_FUSED_PRODUCTS,
    APR_FUSED_QKV_EPILOGUE,
    APR_FUSED_ATTEND,
    APR_FUSED_LATENT_QUERY,
    APR_FUSED_LATENT_STORE,
    APR_FUSED_EXPERTS,
    APR_FUSED_PROMPT,
    APR_FUSED_KINDS
} apr_fused_kind;
enum { APR_FUSED_PRODUCTS_MAX = 3 };

/* What the steps are of: a single token, rows of several sequences, or many tokens. A device has calls of its own for each
 * (kernels/cuda/decode_gemv_args.h, rows_args.h, prompt_args.h). */
typedef enum { APR_FUSED_OF_TOKEN, APR_FUSED_OF_ROWS, APR_FUSED_OF_PROMPT, APR_FUSED_BATCHES } apr_fused_batch;

/* Operations, values and activations are indices; -1: none. */
typedef struct apr_fused {
    apr_fused_kind kind;
    int op;           /* OPERATION, ATTEND, EXPERTS; LATENT: the first of the run */
    int store;        /* QKV_EPILOGUE, and PRODUCTS, ATTEND and PROMPT with one: the kv store */
    int latent_store; /* LATENT_QUERY with one: the first operation of the store */
    int value;        /* INPUTS: the float32 input */
    int inputs;       /* PRODUCTS, EXPERTS of a token: the activations that are multiplied */
    int divided;      /* PRODUCTS, EXPERTS: the norm whose division these activations still need */
    int linears[APR_FUSED_PRODUCTS_MAX];
    int n_linears;
    int glu, add;    /* fused epilogue of the products; EXPERTS: only add; INPUTS, PROMPT: add is the sum before the norm */
    bool writes_f32; /* PRODUCTS, EXPERTS: the result is also written as float32; PROMPT: the products' outputs are */
    int activations; /* INPUTS, PRODUCTS, ATTEND, EXPERTS: the activations that are written */
    int norm;        /* the norm whose weights these activations include; INPUTS, PROMPT, rows: the norm is applied completely */
    int normed;      /* INPUTS, PRODUCTS and EXPERTS of rows: the norm whose output is also written as float32 */
    int before;      /* PROMPT: the step right before it, if it is PROMPT: its products may be left for this step alone */
    bool with_next;  /* PRODUCTS of a token: the next step has the same inputs, and both run concurrently, as one call */
    int head_norms[2], ropes[2]; /* with a store: of query and key; a norm may be -1 */
    float row_sums[2];           /* PROMPT with a GLU: sums of its weights, computed by the device; see apr_prompt_args */
} apr_fused;

/* Operations of a latent query: rope, slice (multiplied), slice (rotated), linear, join; of a latent store: slice (normed), norm, slice
 * (rotated), rope, join, kv store. Counted from the first. */
enum { APR_LATENT_ABSORB = 3, APR_LATENT_QUERY_JOIN, APR_LATENT_QUERY_OPS };
enum { APR_LATENT_NORM = 1, APR_LATENT_STORE_ROPE = 3, APR_LATENT_KV_STORE = 5, APR_LATENT_STORE_OPS };

typedef struct apr_fused_activations {
    int64_t width;
    int first_step, last_step; /* step that writes them, step that reads them last */
    bool is_wgmma;             /* rows: the products that read them have WGMMA kernels; set by the session */
} apr_fused_activations;

typedef struct apr_fusion {
    apr_fused_batch batch;
    apr_fused *steps;
    apr_fused_activations *activations;
    size_t n_steps, n_activations;
} apr_fusion;

/* What the device can do. Without any linear no operations are fused. A zeroed or failed fusion may be closed. */
typedef struct apr_fusible {
    /* [n_ops] 0: the operation is not fused. Linears: a number, equal where they may be fused (one type). KV stores: with norm and rope
     * before them. Ropes and slices: that begin a latent query or store. Experts: from activations. Prompts: a norm before products, a GLU right before a product. */
    const int *takes;
    const int64_t *vector_offsets; /* [n_weights] < 0: the device has no such vector, so that a bias is absent; NULL: none is */
    const int64_t *value_offsets;  /* [n_values] where values of a token are in memory; NULL: no two of them share memory */
    apr_fused_batch batch; /* of a token sums are computed with inputs, and a shared expert's first products go next to the router's */
} apr_fusible;
/* Do the buffers of two values overlap? Memory is planned for one operation at a time: those of a step may. */
bool apr_values_overlap(const apr_program *program, const int64_t *offsets, int a, int b);
apr_status apr_fuse(apr_fusion *fusion, const apr_program *program, const apr_fusible *can, apr_error *err);
void apr_fusion_close(apr_fusion *fusion);

#endif
