/* halves.cuh - inputs of products of many tokens as FP16, and what powers of two have to do with it.
 *
 * A row of inputs is divided by a power of two before it becomes FP16, so that none overflows and small ones keep their bits; sums of
 * products, float32, are multiplied by it again. Powers of two change no mantissa. Each row has its own, and the sums are gone over once
 * more; or all have one, which the product itself multiplies with, when no row's largest number is much smaller than that of another:
 * the device looks and decides, and nobody waits for it.
 *
 * Numbers from 2^-14 on keep their 11 bits, smaller ones are off by 2^-25 at most. The largest of all lies in [2^13, 2^14), that of any
 * other row that shares the power at 2^3 or above: so they are off by 2^-28 of the row's largest number, a sixteenth of what float32
 * sums lose where that number takes part. */
#ifndef APR_KERNELS_CUDA_HALVES_CUH
#define APR_KERNELS_CUDA_HALVES_CUH

#include "kernels/cuda/ops/ops.cuh"

/* Where the rows go. `largest` and `factors` are for rows that may share a power of two. */
typedef struct apr_cuda_halves {
    __half *halves, *rests; /* [n_rows, n_in]; rests: what rounding to FP16 took away, as FP16. NULL: it is dropped */
    float *scales;          /* [n_rows] what the sums are to be multiplied by, still */
    float *largest;         /* [n_rows] */
    float *factors;         /* [3] what a product multiplies its sums by; 0; 1 where that is all. NULL: each row has a power of its own */
} apr_cuda_halves;

cudaError_t apr_cuda_halve(const float *x, const apr_cuda_halves *to, int64_t n_rows, int64_t n_in, cudaStream_t stream);

/* What products left of a unit's gate and up, which still lack some factors. */
typedef struct apr_cuda_gated {
    const float *scales; /* [n_rows] of both */
    bool are_halves;     /* args->gate and args->up point to FP16 numbers, */
    float by[2];         /* of which gate's lack this power of two, too, and up's that one */
} apr_cuda_gated;

/* The unit's outputs as FP16 with a power of two for each row, and as floats where args->out is not NULL. left: NULL: gate and up are
 * whole; its scales may be to->scales. cudaErrorNotSupported: not of rows that wide or that lie so; nothing has been started. */
cudaError_t apr_cuda_glu_halves(const apr_glu_args *args, const apr_cuda_gated *left, const apr_cuda_halves *to, cudaStream_t stream);

/* *most = the largest of *most and what a row's magnitudes add up to, or of other bits where there is one of no number; *most, on the
 * device, is 0 or above. */
cudaError_t apr_cuda_find_row_sum(const __half *rows, int64_t n_rows, int64_t n_in, float *most, cudaStream_t stream);

/* A row that is summed up and normed. */
typedef struct apr_cuda_sum {
    const float *x;      /* [n_rows, width] */
    const float *addend; /* the same; NULL: x is normed as it is */
    const float *scales; /* [n_rows] what the addend still lacks; NULL: nothing. May be those of where it goes */
    const float *bias;   /* [width] that the addend still lacks, or NULL */
    float *sum;          /* may be x or addend */
} apr_cuda_sum;

/* sum = x + addend, and its norm (kernels/op_args.h: of whole rows, RMS, without a bias) as FP16; norm->x and norm->out are not read.
 * cudaErrorNotSupported: not of rows so wide (kernels/cuda/prompt_args.h), and nothing has been started. */
cudaError_t apr_cuda_sum_halves(const apr_cuda_sum *rows, const apr_norm_args *norm, const apr_cuda_halves *to, cudaStream_t stream);

/* out[t][r] = out[t][r] * scales[t] + bias[r]; without a bias, rows that share a power of two are left as they are. */
cudaError_t apr_cuda_finish(float *out, const apr_cuda_halves *of, const float *bias, int64_t n_rows, int64_t n_out, cudaStream_t stream);

#endif
