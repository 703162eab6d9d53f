/* small_gemm.cuh - the small GEMM: products of 2 to 64 tokens, straight from packed weights, on FP16 tensor cores. Stream-K: the stages of all
 * row blocks are divided equally among thread blocks, and a fix-up kernel adds the partial sums of row blocks that several thread blocks
 * share.
 *
 * Codes become FP16 numbers: those of Q4_K with their 6-bit scale, exact; those of Q6_K with their 8-bit scale, rounded to 11 bits beyond
 * 2048. Inputs are FP16, 11 bits, with a power of two for each token; for 16-bit weights two such parts, 22 bits (16 for BF16). A scale
 * that is not an integer multiplies the float32 sums of its columns. Only those sums are rounded otherwise.
 *
 * It is batch invariant: a token's results do not depend on how many other tokens there are. Columns of a tensor core product are
 * independent, and the order of a sum depends only on the matrix' shape and the number of multiprocessors.
 *
 * Two modes. `dense`: all tokens with one to three matrices of one type and width. `grouped`: tokens sorted by expert, each tile of them
 * with the matrix of its expert (ops/pairs.cuh). */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_CUH

extern "C" {
#include "kernels/cuda/small_gemm_workspace.h"
}

#include "kernels/cuda/common/ops.cuh"

enum {
    APR_SMALL_GEMM_PARTS = 3,
    APR_SMALL_GEMM_MOST_SUMMED = 32, /* experts of a token whose sum goes into a slot */
};

/* Matrices of one type and width that share inputs. */
typedef struct apr_small_gemm_part {
    const apr_tensor *weight; /* data on the device at a multiple of 16 bytes; grouped: a stack of experts */
    const float *bias;        /* dense: [rows] or NULL */
    float *out;               /* dense: [n_tokens, rows]; grouped: [splits, slots, rows] sums before factors and biases */
} apr_small_gemm_part;

/* The layout of inputs, by the products that read them: those with FP16 or packed weights, those with BF16 weights, those with WGMMA. */
typedef enum apr_small_gemm_layout { APR_SMALL_GEMM_F16, APR_SMALL_GEMM_BF16, APR_SMALL_GEMM_WGMMA } apr_small_gemm_layout;

/* The layout for products with matrices of this type on the current device. It is decided only here. */
apr_small_gemm_layout apr_cuda_small_gemm_layout(apr_dtype dtype);
/* Whether WGMMA may be used (default: true); tests also run the other kernel. Call it while nothing runs. */
void apr_cuda_allow_wgmma(bool may);

/* Inputs as tensor core fragments (small_gemm/small_gemm_layout.cuh): tiles of 8 tokens, the last one padded with zeros. */
typedef struct apr_small_gemm_inputs {
    int64_t n_in, n_x, n_tiles; /* columns of the weights' rows, and numbers of a token, followed by zeros */
    uint8_t *fragments;         /* [apr_small_gemm_fragment_bytes] */
    uint8_t *sums;              /* [apr_small_gemm_sum_bytes] */
    float *factors;             /* [8 * n_tiles] factor of each token's sums */
    apr_small_gemm_layout layout;
} apr_small_gemm_inputs;

typedef struct apr_small_gemm_args {
    int n_parts;
    apr_small_gemm_part parts[APR_SMALL_GEMM_PARTS];
    int64_t n_tokens; /* dense */
    apr_small_gemm_inputs inputs;
    void *partial; /* dense: [apr_cuda_small_gemm_partial_bytes] */
    /* grouped: */
    const apr_small_gemm_group *groups; /* on the device; NULL: dense */
    const int *n_groups;                /* on the device */
    int most_groups, most_tiles;        /* maximum of it, and of the tiles of a group: apr_cuda_small_gemm_group_tiles */
    int64_t matrix_rows;                /* of one expert */
    int64_t n_slots;                    /* rows of out */
    int splits;                         /* split-K parts of a row's columns, at most one per stage */
} apr_small_gemm_args;

/* Products of chosen experts by slot, before factors and biases, and what their sum for each token needs:
 *     sum over ranks of weight * (product * factor + bias), the most probable expert first */
typedef struct apr_small_gemm_experts {
    const float *routes;  /* [n_tokens, apr_route_row(n_used)] */
    const int *slot_of;   /* [n_tokens * n_used] */
    const float *factors; /* [n_slots] */
    const float *sums;    /* [splits, n_slots, n_out] */
    const float *bias;    /* [n_experts, n_out], or NULL */
    int64_t n_slots, n_out;
    int n_used, splits;
    bool weight_on_input; /* weights have been applied */
} apr_small_gemm_experts;

/* Columns of a matrix' rows as stored. */
static inline int64_t apr_small_gemm_columns_of(const apr_tensor *matrix, int64_t n_in)
{
    return matrix->tiled ? apr_tiled_columns(matrix->dtype, n_in) : n_in;
}

/* Whether there is a kernel for a matrix of this shape and layout. In a stack of experts n_out is the rows of one matrix. */
bool apr_cuda_has_small_gemm(apr_dtype dtype, bool tiled, int64_t n_out, int64_t n_in, int major);

/* Writes row x[row_of[slot]] into each slot, or x[slot] where row_of is NULL; zeros where it is negative or slot >= n. */
cudaError_t apr_cuda_small_gemm_prepare(const float *x, const int *row_of, int64_t n, const apr_small_gemm_inputs *to, cudaStream_t stream);
cudaError_t apr_cuda_small_gemm(const apr_small_gemm_args *args, int n_multiprocessors, cudaStream_t stream);
/* Dense products with the epilogues of kernels/cuda/rows_args.h, and a value written into a slot; from 9.0 on. */
cudaError_t apr_cuda_small_gemm_rows(const apr_rows_args *args, int n_multiprocessors, cudaStream_t stream);
cudaError_t apr_cuda_small_gemm_rows_inputs(const apr_rows_inputs *args, cudaStream_t stream);
/* The same for the sum of experts' products and a residual, which is also written to `sum`. At most
 * APR_SMALL_GEMM_MOST_SUMMED experts of a token. */
cudaError_t apr_cuda_small_gemm_rows_experts(const apr_small_gemm_experts *experts, const float *residual, float *sum,
                                             const apr_rows_inputs *args, cudaStream_t stream);
/* Maximum tiles of a group if a matrix has at most n_tokens tokens; 0: no kernel. */
int apr_cuda_small_gemm_group_tiles(apr_dtype dtype, int64_t n_tokens);

/* A linear of any number of tokens, with inputs and partial sums in its workspace. cudaErrorNotSupported: no kernel, or no room, and
 * nothing was started. is_prepared: the last such product with this workspace had the same inputs, number of tokens and layout, and its
 * inputs are still valid. */
cudaError_t apr_cuda_linear_small_gemm(const apr_linear_args *args, bool is_prepared, int n_multiprocessors, int major,
                                       cudaStream_t stream);

#endif
