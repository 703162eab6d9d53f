/* grad.h - the operations of ops.h for training: each one forward and backward, in float32, or in float64 for checks by differences.
 *
 * A forward pass computes what kernels/ref defines, with all weights as plain numbers and whole sequences from position 0 on: row r of a
 * call is at position r % n_positions of its window, states begin as zeros, and attention reads the keys and values of its window
 * instead of a cache. A backward pass gets the gradient of a loss by the output (d_out) and adds those by inputs and weights. It reads
 * inputs and output of the forward pass; what else it needs it computes again.
 *
 * Numbers are void * here, because both types have the same interface. Operations do not allocate and do not fail. Sums have one order,
 * whatever the number of threads. */
#ifndef APR_KERNELS_GRAD_H
#define APR_KERNELS_GRAD_H

#include "kernels/ops.h"

enum { APR_GRAD_MAX_IN = 3, APR_GRAD_MAX_WEIGHTS = 6 };

/* One operation on all rows. */
typedef struct apr_grad_call {
    const apr_op_args *args;         /* shapes and parameters; of its pointers only ids and frequencies are read */
    int64_t n_rows, n_positions;     /* whole windows of n_positions rows */
    int64_t width_in, width_out;     /* of in[0] (0: no input) and out */
    const void *in[APR_GRAD_MAX_IN]; /* as the operation's spec lists them; attention: queries, keys, values (NULL: in the keys) */
    void *out;
    const void *weight[APR_GRAD_MAX_WEIGHTS]; /* as the spec lists them, those of a layer's experts as one array; NULL: absent */

    const void *d_out;           /* backward: the loss by out */
    void *d_in[APR_GRAD_MAX_IN]; /* added to; NULL: not wanted */
    void *d_weight[APR_GRAD_MAX_WEIGHTS];

    void *work;  /* `work` numbers of the operation */
    void *tiles; /* apr_grad_tiles numbers for each thread */
    int n_threads;
} apr_grad_call;

typedef void (*apr_grad_fn)(const apr_grad_call *call);

typedef struct apr_grad_op {
    apr_grad_fn forward;                       /* NULL: cannot be trained */
    apr_grad_fn backward;                      /* NULL: nothing that it reads has a gradient (rotary angles) */
    size_t (*work)(const apr_grad_call *call); /* numbers of scratch memory for either; NULL: none */
} apr_grad_op;

/* The operations on one type of number. */
typedef struct apr_grad_numbers {
    size_t size; /* bytes of a number */
    apr_grad_op ops[APR_OP_COUNT];
    void (*from_floats)(const float *from, int64_t n, void *to);
    void (*to_floats)(const void *from, int64_t n, float *to);
    int64_t (*first_not_finite)(const void *x, int64_t n); /* -1: all are finite */
    /* kl[r] = KL(softmax(teacher row) || softmax(student row)). With gradient: the student's logits become the gradient of
     * factor * sum of kl. Rows have `width` numbers. */
    void (*divergence)(const float *teacher, void *student, int64_t n_rows, int64_t width, double factor, bool gradient, double *kl,
                       int n_threads);
} apr_grad_numbers;

extern const apr_grad_numbers apr_grad_float32, apr_grad_float64;

/* Numbers of a thread's tiles of a matrix product. */
enum { APR_GRAD_TILE_ROWS = 192, APR_GRAD_TILE_COLUMNS = 128, APR_GRAD_TILE_DEPTH = 128, APR_GRAD_TILE_SUMS = 6 * 32 };
static inline size_t apr_grad_tiles(void)
{
    return (APR_GRAD_TILE_ROWS + APR_GRAD_TILE_COLUMNS) * (size_t)APR_GRAD_TILE_DEPTH + APR_GRAD_TILE_SUMS;
}

#endif
