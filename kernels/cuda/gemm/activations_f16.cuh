/* activations_f16.cuh - activations as row-scaled FP16, for products of many tokens.
 *
 * A row of inputs is divided by a power of two before it becomes FP16, so that none overflows and small ones keep their bits. The float32
 * sums of products are multiplied by it again. Powers of two change no mantissa. Either each row has its own, and a pass over the outputs
 * applies it. Or all rows share one, which the product itself applies, when no row's largest number is much smaller than that of another.
 * The device decides this, and the host does not wait for it.
 *
 * Numbers from 2^-14 on keep their 11 bits, smaller ones are off by at most 2^-25. The largest number of all is in [2^13, 2^14), that of
 * any other row that shares the power is at least 2^3. So numbers are off by at most 2^-28 of their row's largest, a sixteenth of what
 * float32 sums lose where that number takes part. */
#ifndef APR_KERNELS_CUDA_ACTIVATIONS_F16_CUH
#define APR_KERNELS_CUDA_ACTIVATIONS_F16_CUH

#include "kernels/cuda/common/ops.cuh"

/* Where the rows are written. `largest` and `factors` are for rows that may share a power of two. */
typedef struct apr_cuda_activations_f16 {
    __half *values, *remainders;  /* [n_rows, n_in]; remainders: the rounding errors as FP16. NULL: dropped */
    float *scales;                /* [n_rows] factors that the sums still need */
    float *largest;               /* [n_rows] */
    float *factors;               /* [3] the product's factor; 0; 1 if no other factor is needed. NULL: each row has its own power */
    int64_t x_stride, out_stride; /* numbers from a row of inputs or outputs to the next; 0: n_in, n_out. Only without `factors` */
} apr_cuda_activations_f16;

cudaError_t apr_cuda_make_f16(const float *x, const apr_cuda_activations_f16 *to, int64_t n_rows, int64_t n_in, cudaStream_t stream);

/* A GLU's gate and up as products left them, before some factors. */
typedef struct apr_cuda_gated {
    const float *scales; /* [n_rows] for both */
    bool is_f16;         /* args->gate and args->up are FP16, */
    float by[2];         /* and gate also needs by[0], up needs by[1]: powers of two */
} apr_cuda_gated;

/* The GLU's outputs as FP16 with a power of two for each row, and as float32 where args->out is not NULL. gated: NULL: gate and up need no
 * factors; gated->scales may be to->scales. cudaErrorNotSupported: the shape or alignment has no kernel; nothing was started. */
cudaError_t apr_cuda_glu_f16(const apr_glu_args *args, const apr_cuda_gated *gated, const apr_cuda_activations_f16 *to,
                             cudaStream_t stream);

/* *max_sum = the maximum of *max_sum and each row's sum of magnitudes; infinite or NaN if a number is. *max_sum, on the device, is 0 or
 * larger. */
cudaError_t apr_cuda_find_row_sum(const __half *rows, int64_t n_rows, int64_t n_in, float *max_sum, cudaStream_t stream);

/* Rows that are summed and normed. */
typedef struct apr_cuda_sum {
    const float *x;      /* [n_rows, width] */
    const float *addend; /* [n_rows, width]; NULL: x is normed alone */
    const float *scales; /* [n_rows] factors that the addend still needs; NULL: none. May be those of the output */
    const float *bias;   /* [width] that the addend still needs, or NULL */
    float *sum;          /* may be x or addend */
} apr_cuda_sum;

/* sum = x + addend, and its norm (kernels/op_args.h: of whole rows, RMS, without a bias) as FP16; norm->x and norm->out are not read.
 * cudaErrorNotSupported: rows are too wide (kernels/cuda/prompt_args.h); nothing was started. */
cudaError_t apr_cuda_sum_f16(const apr_cuda_sum *rows, const apr_norm_args *norm, const apr_cuda_activations_f16 *to, cudaStream_t stream);

/* out[t][r] = out[t][r] * scales[t] + bias[r]. Does nothing without a bias if rows share a power of two. */
cudaError_t apr_cuda_finish(float *out, const apr_cuda_activations_f16 *of, const float *bias, int64_t n_rows, int64_t n_out,
                            cudaStream_t stream);

#endif
