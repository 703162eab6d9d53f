/* gemm.cuh - the parts of a linear of many tokens, for callers that fuse other operations before or after it: inputs converted to FP16,
 * weights dequantized and multiplied, row scales and bias applied (apr_cuda_finish of activations_f16.cuh).
 *
 * A workspace begins with the scales of each row, whose place depends only on the number of tokens: the kernel that prepares the next
 * product's inputs can read, row by row, the scales that the previous product's outputs still need. Then come the inputs, then weights. */
#ifndef APR_KERNELS_CUDA_GEMM_CUH
#define APR_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/gemm/activations_f16.cuh"

/* APR_E_DEVICE with "<doing>: cuBLAS error: <its message>". */
apr_status apr_cuda_blas_failed(cublasStatus_t status, const char *doing, apr_error *err);

/* Places the inputs in a workspace, as apr_cuda_linear_bytes counts them; *n_bytes: their size. */
apr_cuda_activations_f16 apr_cuda_cut_inputs(const apr_workspace *work, int64_t n_tokens, int64_t n_in, bool shares_scale, size_t *n_bytes);

/* Whether its inputs share a power of two if that loses nothing. */
bool apr_cuda_shares_scale(const apr_linear_args *args);

/* Records that FP16 inputs are in a workspace, for the next call with this device, whether it wants them or not. A call that still has them
 * there records them again. */
void apr_cuda_cache_inputs(apr_cuda_device *device, const apr_cuda_cached_inputs *inputs);
/* Whether the previous call left these inputs. */
bool apr_cuda_has_cached_inputs(const apr_cuda_device *device, const apr_cuda_cached_inputs *wanted);

/* Converts the inputs to FP16, unless the previous call left them. */
cudaError_t apr_cuda_make_f16_once(apr_cuda_device *device, const apr_linear_args *args, const apr_cuda_activations_f16 *inputs);

/* The product of FP16 inputs, before row scales and bias. What cuBLAS refuses is multiplied without it, since there may be no float32
 * inputs to fall back on. */
apr_status apr_cuda_multiply_f16(apr_cuda_device *device, const apr_linear_args *args, const apr_cuda_activations_f16 *inputs,
                                 apr_error *err);

/* The same, with outputs multiplied by 2^exponent and stored as FP16 at args->out. */
apr_status apr_cuda_multiply_to_f16(apr_cuda_device *device, const apr_linear_args *args, const apr_cuda_activations_f16 *inputs,
                                    int exponent, apr_error *err);

/* *sum = the largest sum of magnitudes of a row of the weights as FP16; infinite or NaN if a weight is. Overwrites args->out and the
 * workspace, except its inputs and scales, and waits. */
apr_status apr_cuda_row_sum(apr_cuda_device *device, const apr_linear_args *args, float *sum, apr_error *err);

/* Several products of the same inputs as one: their weights are dequantized one after another, and a token's outputs are next to each
 * other. Both are after the inputs in the workspace. */
typedef struct apr_cuda_stacked_qkv {
    __half *weights; /* [n_rows, n_in] */
    float *out;      /* [n_tokens, n_rows] */
    int64_t n_rows;
} apr_cuda_stacked_qkv;

/* False: a matrix is stored as FP16 and is multiplied in place, or the workspace has no room for all. */
bool apr_cuda_cut_stacked_input(const apr_linear_args *parts, int n_parts, apr_cuda_stacked_qkv *stacked);

/* apr_cuda_multiply_f16 for all of them. */
apr_status apr_cuda_multiply_stacked(apr_cuda_device *device, const apr_linear_args *parts, int n_parts,
                                     const apr_cuda_activations_f16 *inputs, const apr_cuda_stacked_qkv *stacked, apr_error *err);

#endif
