/* ops.cuh - the kernels of the forward pass: what each launcher takes and promises.
 *
 * Arguments are those of kernels/ops.h with device pointers; apr_tensor structs stay on the host, their data (and their
 * scale's data) is on the device, as stored: pending steps and FP8 scales are taken care of here. Packed matrices are there
 * in their regular form (kernels/relay.h), and read from that. Weights begin at
 * multiples of 16 bytes and may be read up to the next multiple of 16 past their end (arenas round lines up to 256).
 *
 * A launcher starts its kernels on the stream, waits for nothing, allocates nothing, and answers what CUDA says of the
 * launch. Activations, sums, scores and softmax are float32. Sums are made in an order that depends on the shapes alone
 * (no atomics): the same inputs give the same bits. */
#ifndef APR_KERNELS_CUDA_OPS_CUH
#define APR_KERNELS_CUDA_OPS_CUH

extern "C" {
#include "formats/model/packing.h"
#include "kernels/cuda/api.h"
}

#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* Where the first token of a call lies: the position as it is given, or as the device's own memory has it. */
static __device__ __forceinline__ int64_t position_of(int64_t position, const int64_t *position_at)
{
    return position_at != NULL ? *position_at : position;
}

/* The same of token t of a call. */
static __device__ __forceinline__ int64_t position_of_token(int64_t position, const int64_t *position_at, bool apart, int64_t t)
{
    return apart ? position_at[t] : position_of(position, position_at) + t;
}

/* True for types that linear_few, decode and embed read as they are stored. */
bool apr_cuda_has_kernel(apr_dtype dtype);

/* The same of packed matrices in their regular form, whose values are of `dtype`. */
bool apr_cuda_takes_packing(const apr_packing *packing, apr_dtype dtype);

/* Are its numbers FP16 where they lie? */
static inline bool apr_cuda_is_f16(const apr_tensor *matrix) { return matrix->dtype == APR_F16 && matrix->packing == NULL; }

/* The table's rows, any type that has a kernel. */
cudaError_t apr_cuda_embed(const apr_embed_args *args, cudaStream_t stream);
cudaError_t apr_cuda_angles(const apr_angles_args *args, cudaStream_t stream);
cudaError_t apr_cuda_norm(const apr_norm_args *args, cudaStream_t stream);
cudaError_t apr_cuda_rope(const apr_rope_args *args, cudaStream_t stream);
cudaError_t apr_cuda_kv_store(const apr_kv_store_args *args, cudaStream_t stream);
/* Up to APR_CUDA_FEW_TOKENS tokens: the context may be read in parts, in args->work (one slice of apr_cuda_attend_bytes at
 * most; with less, or none, in fewer parts). More tokens need no workspace. */
cudaError_t apr_cuda_attend(const apr_attend_args *args, cudaStream_t stream);
/* The same, as right as float32 for any number of tokens; apr_cuda_attend is that up to APR_CUDA_CAREFUL_TOKENS. */
cudaError_t apr_cuda_attend_exact(const apr_attend_args *args, cudaStream_t stream);
/* args->work does not matter. */
cudaError_t apr_cuda_glu_floats(const apr_glu_args *args, cudaStream_t stream);
cudaError_t apr_cuda_add(const apr_add_args *args, cudaStream_t stream);
cudaError_t apr_cuda_slice(const apr_slice_args *args, cudaStream_t stream);
cudaError_t apr_cuda_join(const apr_join_args *args, cudaStream_t stream);
cudaError_t apr_cuda_scale(const apr_scale_args *args, cudaStream_t stream);
cudaError_t apr_cuda_mul(const apr_mul_args *args, cudaStream_t stream);
cudaError_t apr_cuda_softcap(const apr_softcap_args *args, cudaStream_t stream);
cudaError_t apr_cuda_gate(const apr_gate_args *args, cudaStream_t stream);

/* No workspace: a token's scores lie in shared memory. */
cudaError_t apr_cuda_route(const apr_route_args *args, cudaStream_t stream);
/* gate, up and down are one stack each, [n_experts, rows, columns] without a pending step. The workspace is one slice of at least
 * apr_cuda_experts_bytes of one token; with more, more tokens are computed at a time. */
cudaError_t apr_cuda_experts(const apr_experts_args *args, cudaStream_t stream);
cudaError_t apr_cuda_conv(const apr_conv_args *args, cudaStream_t stream);
cudaError_t apr_cuda_delta(const apr_delta_args *args, cudaStream_t stream);
cudaError_t apr_cuda_ssd(const apr_ssd_args *args, cudaStream_t stream);

/* Linear of 1 to APR_CUDA_FEW_TOKENS tokens straight from the packed weights; needs no workspace. */
cudaError_t apr_cuda_linear_few(const apr_linear_args *args, cudaStream_t stream);

/* The same, and a token's numbers do not depend on how many others there are. */
cudaError_t apr_cuda_linear_alike(const apr_linear_args *args, cudaStream_t stream);

/* The same as the first where each head has a matrix of its own, for any number of tokens. */
cudaError_t apr_cuda_linear_heads_few(const apr_linear_args *args, cudaStream_t stream);

/* Logical rows [first, first + n_rows) of a matrix as numbers: F16, BF16 or F32, rows without gaps. `out` begins at a
 * multiple of 16 bytes. F32 has the bits of apr_decode_rows, the others are rounded to nearest. */
cudaError_t apr_cuda_decode(const apr_tensor *matrix, int64_t first, int64_t n_rows, apr_dtype to, void *out, cudaStream_t stream);
static inline cudaError_t apr_cuda_decode_half(const apr_tensor *matrix, int64_t first, int64_t n_rows, __half *out, cudaStream_t stream)
{
    return apr_cuda_decode(matrix, first, n_rows, APR_F16, out, stream);
}

#endif
