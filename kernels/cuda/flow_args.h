/* flow_args.h - products of a single token that stream their weights: which types, in which order their bytes lie on a device, and what a
 * step is given.
 *
 *     y = weight x;   x as planes (pairs of bytes with a scale for each 16: ops/planes.cuh), or those divided by rms where squares are
 * given STORE  out = y * factor + bias ADD    out = residual + (y * factor + bias) GLU    out = activation(y of part 0 + bias) * (y of part
 * 1 + bias) each:  planes of out * gain, and for each 16 the sum of the squares of out
 *
 * factor is 1 / sqrt(mean of squares + eps): a norm's division commutes with the product, and its gains are in the planes already.
 *
 * Packed weights lie in items: the blocks of so many columns, 16 rows behind one another, then those of the next columns of the same rows.
 * An item is one run of memory, wherever rows begin. These are the file's bytes in another order, and as many; each block stays whole. */
#ifndef APR_KERNELS_CUDA_FLOW_ARGS_H
#define APR_KERNELS_CUDA_FLOW_ARGS_H

#include "kernels/op_args.h"

/* X(ID, columns of an item): types that are put into items, and types whose rows stay as they are. */
#define APR_FLOW_ITEMS(X) X(Q4_K, 256) X(Q6_K, 256) X(Q8_0, 128) X(MXFP4, 256)
#define APR_FLOW_ROWS(X)  X(F16, 64) X(BF16, 64)

enum {
    APR_FLOW_UNIT = 16,       /* rows that are taken together */
    APR_FLOW_PARTS = 3,       /* matrices that share their inputs, at most */
    APR_FLOW_CAPABILITY = 8,  /* of a device, at least */
    APR_PLANES_COLUMNS = 256, /* numbers of a tile of planes: */
    APR_PLANES_BYTES = 640,
};

static inline int64_t apr_planes_bytes(int64_t n) { return (n + APR_PLANES_COLUMNS - 1) / APR_PLANES_COLUMNS * APR_PLANES_BYTES; }

/* 0: no such type, or not so. */
static inline int apr_flow_item_columns(apr_dtype dtype)
{
    switch ((int)dtype) {
#define X(id, columns) \
    case APR_##id: return columns;
        APR_FLOW_ITEMS(X)
#undef X
    default: return 0;
    }
}

/* Is there a kernel for a matrix of that shape, on a device of that capability? */
static inline bool apr_flows(apr_dtype dtype, int64_t n_out, int64_t n_in, int major)
{
    int columns = apr_flow_item_columns(dtype);
#define X(id, n) \
    if (dtype == APR_##id) columns = n;
    APR_FLOW_ROWS(X)
#undef X
    return columns > 0 && n_in % columns == 0 && n_out % APR_FLOW_UNIT == 0 && n_out > 0 && major >= APR_FLOW_CAPABILITY;
}

typedef enum { APR_FLOW_STORE, APR_FLOW_ADD, APR_FLOW_GLU } apr_flow_ending;

/* Matrices of one type and width. */
typedef struct apr_flow_part {
    const apr_tensor *weight; /* data on the device, at a multiple of 16 bytes */
    const float *bias;        /* [rows] or NULL */
    float *out;               /* [rows]; NULL: planes alone. GLU: that of part 0 */
} apr_flow_part;

typedef struct apr_flow_args {
    apr_flow_ending ending;
    int n_parts;
    apr_flow_part parts[APR_FLOW_PARTS]; /* GLU: gate and up, of equal size */
    int64_t n_in;
    const uint8_t *x;     /* [apr_planes_bytes(n_in)] */
    const float *squares; /* [n_in / 16] or NULL: no norm */
    float eps;
    apr_glu_shape glu;
    const float *residual; /* of ADD; may be out */
    const float *gain;     /* [rows] of the norm behind; NULL: none */
    float gain_offset;
    uint8_t *planes;    /* of out * (gain + gain_offset); NULL: not wanted. One part only, or GLU */
    float *out_squares; /* [rows / 16]; NULL: not wanted */
} apr_flow_args;

/* A value as planes: x, or normed whole: x / sqrt(mean(x^2) + eps) * (gain + gain_offset). */
typedef struct apr_flow_inputs {
    int64_t n; /* a multiple of 16 */
    const float *x;
    bool norm;
    float eps, gain_offset;
    const float *gain; /* NULL: none */
    uint8_t *planes;
} apr_flow_inputs;

#endif
