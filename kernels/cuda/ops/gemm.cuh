/* gemm.cuh - products of many tokens in parts, for those who put something else in front of them or behind: inputs made FP16, weights
 * decoded and multiplied, factors of rows and a bias (apr_cuda_finish of halves.cuh).
 *
 * A workspace begins with what is known of each row, whose place depends on the number of tokens alone: what a product leaves to be
 * multiplied can be read by the one who prepares the inputs of the next, row by row. Then come the inputs, then weights. */
#ifndef APR_KERNELS_CUDA_GEMM_CUH
#define APR_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/ops/halves.cuh"

/* APR_E_DEVICE with "<doing>: cuBLAS says <its words>". */
apr_status apr_cuda_blas_failed(cublasStatus_t status, const char *doing, apr_error *err);

/* The inputs' part of a workspace, as apr_cuda_linear_bytes counts it; *n_bytes of it. */
apr_cuda_halves apr_cuda_cut_inputs(const apr_workspace *work, int64_t n_tokens, int64_t n_in, bool together, size_t *n_bytes);

/* Do its inputs share a power of two, if that loses nothing? */
bool apr_cuda_goes_together(const apr_linear_args *args);

/* Inputs as FP16 in a workspace, for the next call that is given the device; what that call is, and whether it wants them, does not matter.
 * Whoever still has them there leaves them again. */
void apr_cuda_leave_halved(apr_cuda_device *device, const apr_cuda_halved *left);
/* Did the call before leave them? */
bool apr_cuda_has_halved(const apr_cuda_device *device, const apr_cuda_halved *wanted);

/* Made where the call before did not leave them. */
cudaError_t apr_cuda_halve_once(apr_cuda_device *device, const apr_linear_args *args, const apr_cuda_halves *inputs);

/* The product of inputs that are there, without factors of rows and bias. What cuBLAS refuses is multiplied without it: there may be no
 * other inputs to fall back on. */
apr_status apr_cuda_multiply_halves(apr_cuda_device *device, const apr_linear_args *args, const apr_cuda_halves *inputs, apr_error *err);

/* The same, whose outputs are multiplied by 2^exponent and left as FP16 where args->out begins. */
apr_status apr_cuda_multiply_to_halves(apr_cuda_device *device, const apr_linear_args *args, const apr_cuda_halves *inputs, int exponent,
                                       apr_error *err);

/* *sum = the largest sum of magnitudes of a row of the weights, as FP16; infinite or no number where one of them is. The workspace is
 * written to behind inputs and what is known of rows, and args->out; it is waited for. */
apr_status apr_cuda_row_sum(apr_cuda_device *device, const apr_linear_args *args, float *sum, apr_error *err);

/* Several products of the same inputs as one: their weights are decoded behind one another, and a token's outputs stand side by side, both
 * behind the inputs in the workspace. */
typedef struct apr_cuda_joined {
    __half *weights; /* [n_rows, n_in] */
    float *out;      /* [n_tokens, n_rows] */
    int64_t n_rows;
} apr_cuda_joined;

/* False: a matrix lies there as FP16, so that it is multiplied where it is; or the workspace has no room for all of it. */
bool apr_cuda_cut_joined(const apr_linear_args *parts, int n_parts, apr_cuda_joined *joined);

/* apr_cuda_multiply_halves of all of them. */
apr_status apr_cuda_multiply_joined(apr_cuda_device *device, const apr_linear_args *parts, int n_parts, const apr_cuda_halves *inputs,
                                    const apr_cuda_joined *joined, apr_error *err);

#endif
