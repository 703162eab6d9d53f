/* abreast.cuh - products of 2 to 64 tokens abreast, straight from packed weights, on FP16 tensor cores.
 *
 * Codes become FP16 numbers, a Q4_K's with its 6-bit scale whole and exact, a Q6_K's with its 8-bit scale rounded to 11 bits beyond 2048.
 * Inputs are FP16, 11 bits, with a power of two for each token; beside 16-bit weights two such parts, 22 bits (16 beside BF16). A scale
 * that is no whole number multiplies the float32 sums of the columns that it holds for. Nothing else is rounded but those sums.
 *
 * A token's numbers do not depend on how many others are beside it: columns of a tensor core's product have nothing to do with each other,
 * and the order of a sum follows from the matrix' shape and the number of multiprocessors alone.
 *
 * Two kinds: `dense`, all tokens with one to three matrices of a type and width; `grouped`, tokens sorted by expert, each tile of them
 * with the matrix of its expert (ops/pairs.cuh). */
#ifndef APR_KERNELS_CUDA_ABREAST_CUH
#define APR_KERNELS_CUDA_ABREAST_CUH

extern "C" {
#include "kernels/cuda/abreast_room.h"
}

#include "kernels/cuda/ops/ops.cuh"

enum { APR_ABREAST_PARTS = 3 };

/* Matrices of one type and width that share inputs. */
typedef struct apr_abreast_part {
    const apr_tensor *weight; /* data on the device at a multiple of 16 bytes; grouped: a stack of experts */
    const float *bias;        /* dense: [rows] or NULL */
    float *out;               /* dense: [n_tokens, rows]; grouped: [splits, slots, rows] sums without factors and biases */
} apr_abreast_part;

/* What products read them: those beside 16-bit floats of a kind, and, where warpgroups multiply, those of types that they multiply. */
typedef enum apr_abreast_form { APR_ABREAST_HALVES, APR_ABREAST_BFLOATS, APR_ABREAST_WIDE } apr_abreast_form;

/* Of products with matrices of that type on the current device: the one place where it is decided. */
apr_abreast_form apr_cuda_abreast_form(apr_dtype dtype);
/* Whether warpgroups may multiply: true; tests have the other kernel, too. To be called while nothing runs. */
void apr_cuda_let_warpgroups(bool may);

/* Inputs as fragments of products (ops/abreast_lanes.cuh): tiles of 8 tokens, the last one filled up with zeros. */
typedef struct apr_abreast_inputs {
    int64_t n_in, n_x, n_tiles; /* columns of the weights' rows, and how many numbers a token has for them: zeros behind */
    uint8_t *fragments;         /* [apr_abreast_fragment_bytes] */
    uint8_t *sums;              /* [apr_abreast_sum_bytes] */
    float *factors;             /* [8 * n_tiles] what a token's sums are multiplied by */
    apr_abreast_form form;
} apr_abreast_inputs;

typedef struct apr_abreast_args {
    int n_parts;
    apr_abreast_part parts[APR_ABREAST_PARTS];
    int64_t n_tokens; /* dense */
    apr_abreast_inputs inputs;
    void *partial; /* dense: [apr_cuda_abreast_partial_bytes] */
    /* grouped: */
    const apr_abreast_group *groups; /* on the device; NULL: dense */
    const int *n_groups;             /* on the device */
    int most_groups, most_tiles;     /* bounds of it, and of the tiles of one: apr_cuda_abreast_group_tiles */
    int64_t matrix_rows;             /* of one expert */
    int64_t n_slots;                 /* rows of out */
    int splits;                      /* parts that a row's columns are summed in, at most one a stage */
} apr_abreast_args;

/* Is there a kernel for a matrix of that shape whose blocks lie so? In `rows` of a stack each matrix has a whole number of units. */
bool apr_cuda_goes_abreast(apr_dtype dtype, bool in_items, int64_t n_out, int64_t n_in, int major);

/* Row x[row_of[slot]] into each slot, or x[slot] where row_of is NULL; zeros where it is negative or slot >= n. */
cudaError_t apr_cuda_abreast_prepare(const float *x, const int *row_of, int64_t n, const apr_abreast_inputs *to, cudaStream_t stream);
cudaError_t apr_cuda_abreast(const apr_abreast_args *args, int n_multiprocessors, cudaStream_t stream);
/* Dense products ended as kernels/cuda/rows_args.h says, and a value brought into a slot; from 9.0 on. */
cudaError_t apr_cuda_abreast_rows(const apr_rows_args *args, int n_multiprocessors, cudaStream_t stream);
cudaError_t apr_cuda_abreast_rows_inputs(const apr_rows_inputs *args, cudaStream_t stream);
/* Tiles that a group may have where a matrix has n_tokens at most; 0: no kernel. */
int apr_cuda_abreast_group_tiles(apr_dtype dtype, int64_t n_tokens);

/* A linear of any number of tokens, inputs and partial sums in its workspace; cudaErrorNotSupported: no kernel, or no room, and nothing
 * has been started. is_prepared: the last such product with that workspace had the same inputs and as many tokens, of weights that want
 * them in the same form, and they are there still. */
cudaError_t apr_cuda_linear_abreast(const apr_linear_args *args, bool is_prepared, int n_multiprocessors, int major, cudaStream_t stream);

#endif
