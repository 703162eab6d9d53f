/* ops.cuh - the kernels of the forward pass: what each launcher takes and promises.
 *
 * Arguments are those of kernels/ops.h with device pointers. apr_tensor structs stay on the host; their data (and their scale's data) is on
 * the device, as stored. Pending steps and FP8 scales are applied here. Packed matrices are in the canonical layout (kernels/repack.h).
 * Weights begin at multiples of 16 bytes and may be read up to the next multiple of 16 past their end (arenas round sizes up to 256).
 *
 * A launcher starts its kernels on the stream, without waiting or allocating, and returns CUDA's status of the launch. Activations, sums,
 * scores and softmax are float32. The order of sums depends only on shapes (no atomics): the same inputs give the same bits. */
#ifndef APR_KERNELS_CUDA_OPS_CUH
#define APR_KERNELS_CUDA_OPS_CUH

extern "C" {
#include "formats/tensor/packing.h"
#include "kernels/cuda/api.h"
}

#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* The position of a call's first token: given directly, or in device memory. */
static __device__ __forceinline__ int64_t position_of(int64_t position, const int64_t *position_at)
{
    return position_at != NULL ? *position_at : position;
}

/* The position of token t of a call. per_sequence: each token is of its own sequence and has its own position. */
static __device__ __forceinline__ int64_t position_of_token(int64_t position, const int64_t *position_at, bool per_sequence, int64_t t)
{
    return per_sequence ? position_at[t] : position_of(position, position_at) + t;
}

/* True for types that linear_few, decode and embed read as they are stored. */
bool apr_cuda_has_kernel(apr_dtype dtype);

/* The same for packed matrices in the canonical layout, whose values are of `dtype`. */
bool apr_cuda_takes_packing(const apr_packing *packing, apr_dtype dtype);

/* Whether its numbers are stored as FP16. */
static inline bool apr_cuda_is_f16(const apr_tensor *matrix) { return matrix->dtype == APR_F16 && matrix->packing == NULL; }

/* Rows of the embedding table, of any type that has a kernel. */
cudaError_t apr_cuda_embed(const apr_embed_args *args, cudaStream_t stream);
cudaError_t apr_cuda_positions(const apr_positions_args *args, cudaStream_t stream);
cudaError_t apr_cuda_angles(const apr_angles_args *args, cudaStream_t stream);
cudaError_t apr_cuda_norm(const apr_norm_args *args, cudaStream_t stream);
cudaError_t apr_cuda_rope(const apr_rope_args *args, cudaStream_t stream);
cudaError_t apr_cuda_kv_store(const apr_kv_store_args *args, cudaStream_t stream);
/* No workspace: a token's choice is in shared memory, up to 2048 positions with keys of at most 512 numbers. */
cudaError_t apr_cuda_index(const apr_index_args *args, cudaStream_t stream);
/* With up to APR_CUDA_FEW_TOKENS tokens the context may be read in parts (split-KV), in args->work: one slice of at most
 * apr_cuda_attend_bytes; with less, or none, in fewer parts. More tokens need no workspace. */
cudaError_t apr_cuda_attend(const apr_attend_args *args, cudaStream_t stream);
/* The same with the accuracy of float32 for any number of tokens; apr_cuda_attend has it up to APR_CUDA_CAREFUL_TOKENS. */
cudaError_t apr_cuda_attend_exact(const apr_attend_args *args, cudaStream_t stream);
/* args->work is not used. */
cudaError_t apr_cuda_glu_floats(const apr_glu_args *args, cudaStream_t stream);
cudaError_t apr_cuda_add(const apr_add_args *args, cudaStream_t stream);
cudaError_t apr_cuda_slice(const apr_slice_args *args, cudaStream_t stream);
cudaError_t apr_cuda_join(const apr_join_args *args, cudaStream_t stream);
cudaError_t apr_cuda_scale(const apr_scale_args *args, cudaStream_t stream);
cudaError_t apr_cuda_mul(const apr_mul_args *args, cudaStream_t stream);
cudaError_t apr_cuda_softcap(const apr_softcap_args *args, cudaStream_t stream);
cudaError_t apr_cuda_altup(const apr_altup_args *args, cudaStream_t stream);
cudaError_t apr_cuda_rescale(const apr_rescale_args *args, cudaStream_t stream);
cudaError_t apr_cuda_gauss_topk(const apr_gauss_topk_args *args, cudaStream_t stream);
cudaError_t apr_cuda_gate(const apr_gate_args *args, cudaStream_t stream);

/* No workspace: a token's scores are in shared memory. */
cudaError_t apr_cuda_route(const apr_route_args *args, cudaStream_t stream);
/* gate, up and down are one stack each, [n_experts, rows, columns], without a pending step. The workspace is one slice of at least
 * apr_cuda_experts_bytes of one token; with more, more tokens are computed at a time. */
cudaError_t apr_cuda_experts(const apr_experts_args *args, cudaStream_t stream);
cudaError_t apr_cuda_conv(const apr_conv_args *args, cudaStream_t stream);
cudaError_t apr_cuda_delta(const apr_delta_args *args, cudaStream_t stream);
cudaError_t apr_cuda_ssd(const apr_ssd_args *args, cudaStream_t stream);

/* Linear of 1 to APR_CUDA_FEW_TOKENS tokens straight from the packed weights, without a workspace. */
cudaError_t apr_cuda_linear_few(const apr_linear_args *args, cudaStream_t stream);

/* The same, batch invariant: a token's results do not depend on how many others there are. */
cudaError_t apr_cuda_linear_batch_invariant(const apr_linear_args *args, cudaStream_t stream);
/* The same for a router of 16 or 32 bits, with weights and inputs as they are. cudaErrorNotSupported: another matrix. */
cudaError_t apr_cuda_router(const apr_linear_args *args, cudaStream_t stream);

/* Like apr_cuda_linear_few with a matrix per head, for any number of tokens. */
cudaError_t apr_cuda_linear_heads_few(const apr_linear_args *args, cudaStream_t stream);

/* Dequantizes logical rows [first, first + n_rows) of a matrix to F16, BF16 or F32, rows without gaps. `out` begins at a multiple of 16
 * bytes. F32 has the bits of apr_decode_rows, the others are rounded to nearest. */
cudaError_t apr_cuda_decode(const apr_tensor *matrix, int64_t first, int64_t n_rows, apr_dtype to, void *out, cudaStream_t stream);
static inline cudaError_t apr_cuda_decode_to_half(const apr_tensor *matrix, int64_t first, int64_t n_rows, __half *out, cudaStream_t stream)
{
    return apr_cuda_decode(matrix, first, n_rows, APR_F16, out, stream);
}

#endif
