/* rows_args.h - small GEMMs of a decode batch with their epilogues: up to 64 tokens, each of its own sequence or all of one prompt.
 *
 *     STORE  out = y                       y = weight x + bias of each part; x: inputs in a slot
 *     ADD    out = residual + y
 *     GLU    out = activation(y of part 0) * (y of part 1)
 *     each, where a slot is given: writes the inputs of the next products there, from out or from its norm:
 *            out / sqrt(mean(out^2) + eps) * (gain + gain_offset)
 *
 * The bits are those of the separate operations, except that the order of a product's sums follows from all parts together. Slots are in
 * the workspace, before the partial sums of stream-K. Any other operation that uses the workspace overwrites them. */
#ifndef APR_KERNELS_CUDA_ROWS_ARGS_H
#define APR_KERNELS_CUDA_ROWS_ARGS_H

#include "kernels/cuda/decode_gemv_args.h"

enum {
    APR_ROWS_SLOTS = 2,
    APR_ROWS_MAX_TOKENS = 64, /* tokens: the range in which small GEMMs are preferred */
};

/* Where the slots are, and for which products. */
typedef struct apr_rows_workspace {
    apr_workspace work;
    int64_t widest; /* maximum width of a value in a slot */
    bool is_bf16;   /* all products have BF16 weights */
} apr_rows_workspace;

typedef struct apr_rows_output {
    int slot;      /* -1: none */
    bool is_wgmma; /* the products that read it all have types with a WGMMA kernel (apr_small_gemm_has_wgmma) */
    bool norm;
    float eps, gain_offset;
    const float *gain; /* [width] or NULL */
} apr_rows_output;

typedef struct apr_rows_args {
    apr_rows_workspace workspace;
    apr_epilogue epilogue;
    int64_t n_tokens, n_in;
    int slot;      /* where the inputs are */
    bool is_wgmma; /* as they were written */
    int n_parts;
    apr_decode_gemv_part parts[APR_DECODE_GEMV_PARTS]; /* all of one type; out: [n_tokens, rows], always needed: sums go through it */
    apr_glu_shape glu;
    const float *residual;  /* [n_tokens, rows]; may be out */
    float *out;             /* ADD, GLU; NULL: not wanted. Required with a norm. STORE: part 0's is used */
    apr_rows_output output; /* STORE: with one part only */
    float *normed;          /* the norm also as float32, [n_tokens, rows]; NULL: not wanted. May not overlap with out */
    /* STORE with three parts and no slot: the parts are queries, keys and values, and this QKV epilogue is applied to them. NULL: none. Its
     * q.out may not overlap with what it reads, except the queries themselves. */
    const apr_qkv_epilogue_args *qkv;
} apr_rows_args;

/* Writes a value into a slot as inputs of the next products. */
typedef struct apr_rows_inputs {
    apr_rows_workspace workspace;
    int64_t n_tokens, width;
    const float *x;
    float *out; /* [n_tokens, width] the same as float32; NULL: not wanted. May be x */
    apr_rows_output output;
} apr_rows_inputs;

/* The chosen experts of each row, and their sum with a residual, which goes into a slot as the inputs of the next products. The experts' out
 * is used only where they have no small GEMM. */
typedef struct apr_rows_experts {
    apr_experts_args experts; /* its workspace is that of the slots */
    const float *residual;    /* [n_tokens, n_out]; may be sum */
    float *sum;               /* [n_tokens, n_out]; may not overlap with the routes */
    apr_rows_inputs inputs;   /* x: sum */
} apr_rows_experts;

#endif
