/* flow.cuh - products of one token with packed matrices, made to stream: whole-number products on tensor cores, weights that are on their
 * way before the inputs are known, and an ending that leaves what the next product needs. What is computed: kernels/cuda/flow_args.h.
 *
 * Rows are taken by 16, a unit; a block has whole units, its warps share their columns. Sums have an order that depends on shapes and the
 * number of multiprocessors alone.
 *
 * Weights are asked for while the kernel in front still runs (follow.cuh). */
#ifndef APR_KERNELS_CUDA_FLOW_CUH
#define APR_KERNELS_CUDA_FLOW_CUH

#include "kernels/cuda/ops/planes.cuh"

/* Does a block of such a product fit that much shared memory? */
bool apr_cuda_flow_fits(apr_dtype dtype, int64_t n_out, int64_t n_in, int n_multiprocessors, int shared_bytes);
cudaError_t apr_cuda_flow(const apr_flow_args *args, int n_multiprocessors, cudaStream_t stream);
/* The chosen experts of one token, of which apr_experts_flow says so, ended as `flow` says (api.h); cudaErrorNotSupported: they do not fit.
 */
cudaError_t apr_cuda_flow_experts(const apr_experts_args *args, const apr_flow_args *flow, int n_multiprocessors, cudaStream_t stream);
cudaError_t apr_cuda_flow_prepare(const apr_flow_inputs *args, cudaStream_t stream);
/* cudaErrorNotSupported: a cache of another type. */
cudaError_t apr_cuda_turn(const apr_turn_args *args, cudaStream_t stream);
/* What products of many tokens left of the query, the key and the value, where it lies and what it still lacks. */
typedef struct apr_cuda_unfinished {
    const float *scales;  /* [n_tokens] */
    const float *bias[3]; /* or NULL */
    const float *from[3]; /* NULL: each where args say */
    int64_t stride;       /* from one token to the next, of all three */
} apr_cuda_unfinished;

/* A turn of args->store.n_tokens tokens, after which q.out is all that is there as floats. */
cudaError_t apr_cuda_turn_many(const apr_turn_args *args, const apr_cuda_unfinished *unfinished, cudaStream_t stream);
/* Is it what a turn takes? */
bool apr_cuda_is_turn(const apr_turn_args *args);

/* Rows (a multiple of 16) of a type that is put into items, from row behind row to items; `to` is where the first one's unit begins. */
cudaError_t apr_cuda_to_items(apr_dtype dtype, const uint8_t *rows, int64_t n_rows, int64_t n_in, uint8_t *to, cudaStream_t stream);

#endif
