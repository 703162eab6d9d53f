/* flow.cuh - products of one token with packed matrices, made to stream: whole-number products on tensor cores, weights that are on their
 * way before the inputs are known, and an ending that leaves what the next product needs.
 *
 *     y = weight x;   x as planes (planes.cuh), or floats / rms where `squares` says so
 *     STORE  out = y * factor + bias
 *     ADD    out = residual + (y * factor + bias)
 *     GLU    out = activation(y of part 0 + bias) * (y of part 1 + bias)
 *     each:  planes of out * gain, and for each 16 the sum of the squares of out
 *
 * Weights lie in items: the blocks of so many columns as a type takes at once (flow_columns), 16 rows behind one another, then those of the
 * next columns of the same rows. These are the file's bytes in another order, and as many.
 *
 * Rows are taken by 16, a unit; a block has whole units, its warps share their columns. factor is 1 / sqrt(mean of squares + eps), since a
 * norm's division commutes with the product; its gains are in the planes already. Sums have an order that depends on shapes alone. */
#ifndef APR_KERNELS_CUDA_FLOW_CUH
#define APR_KERNELS_CUDA_FLOW_CUH

#include "kernels/cuda/ops/planes.cuh"

extern "C" {
#include "formats/number/dtype.h"
#include "kernels/activation.h"
}

enum { FLOW_UNIT = 16, FLOW_PARTS = 3 };

typedef enum { FLOW_STORE, FLOW_ADD, FLOW_GLU } flow_ending;

/* Matrices of one type and width that share their inputs. */
typedef struct flow_part {
    const uint8_t *weight; /* items, at a multiple of 16 bytes */
    const float *bias;     /* [16 * n_units] or NULL */
    float *out;            /* [16 * n_units]; NULL: planes alone. GLU: that of part 0 */
    int n_units;
} flow_part;

typedef struct flow_args {
    apr_dtype dtype;
    flow_ending ending;
    int n_parts;
    flow_part parts[FLOW_PARTS]; /* GLU: gate and up, of equal size */
    int64_t n_in;
    const uint8_t *x;     /* [planes_bytes(n_in)] */
    const float *squares; /* [n_squares] or NULL: no norm */
    int n_squares;
    float eps;
    apr_glu_shape glu;
    const float *residual; /* of ADD; may be out */
    const float *gain;     /* of the norm behind; NULL: none */
    uint8_t *planes;       /* of out * gain; NULL: not wanted. One part only, or GLU */
    float *out_squares;    /* [units]; NULL: not wanted */
} flow_args;

/* Is there a kernel for rows of that type and width, for so many rows, on a device of that capability? */
bool apr_cuda_flows(apr_dtype dtype, int64_t n_in, int64_t n_out, int major);
/* Columns of an item; 0: no such type. */
int apr_cuda_flow_columns(apr_dtype dtype);
/* `follows`: its weights may be asked for while the kernel before still runs, which must be launched with `lets` (all flow kernels are). */
cudaError_t apr_cuda_flow(const flow_args *args, int n_multiprocessors, bool follows, cudaStream_t stream);

/* A norm (weight NULL: none) of one row as planes: x / sqrt(mean(x^2) + eps) * (weight + offset). n a multiple of 16. */
cudaError_t apr_cuda_prepare(const float *x, const float *weight, float offset, float eps, bool norm, int64_t n, uint8_t *planes,
                             bool follows, cudaStream_t stream);

#endif
