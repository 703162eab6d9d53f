/* flow.cuh - products of one token with packed matrices, made to stream: whole-number products on tensor cores, weights that are on their
 * way before the inputs are known, and an ending that leaves what the next product needs. What is computed: kernels/cuda/flow_args.h.
 *
 * Rows are taken by 16, a unit; a block has whole units, its warps share their columns. Sums have an order that depends on shapes and the
 * number of multiprocessors alone.
 *
 * `follows`: the kernel before on the stream was one of these, and its results are all that is needed of it: weights are asked for while
 * it still runs (programmatic dependent launch, from 9.0 on). */
#ifndef APR_KERNELS_CUDA_FLOW_CUH
#define APR_KERNELS_CUDA_FLOW_CUH

#include "kernels/cuda/ops/planes.cuh"

/* Does a block of such a product fit that much shared memory? */
bool apr_cuda_flow_fits(apr_dtype dtype, int64_t n_out, int64_t n_in, int n_multiprocessors, int shared_bytes);
cudaError_t apr_cuda_flow(const apr_flow_args *args, int n_multiprocessors, bool follows, cudaStream_t stream);
cudaError_t apr_cuda_flow_prepare(const apr_flow_inputs *args, bool follows, cudaStream_t stream);

/* Rows (a multiple of 16) of a type that is put into items, from row behind row to items; `to` is where the first one's unit begins. */
cudaError_t apr_cuda_to_items(apr_dtype dtype, const uint8_t *rows, int64_t n_rows, int64_t n_in, uint8_t *to, cudaStream_t stream);

#endif
