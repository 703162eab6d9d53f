/* codecs.cuh - kernels/ref's codecs on the device: the same numbers in the same order, so the same bytes.
 *
 * Files that include this are compiled without contraction, with exact division and with denormals (-fmad=false). Decoders give
 * float32 to device memory, encoders read it from there: at most 8 bytes a weight of the device's own bandwidth, which is
 * little beside the way to the device, and n + m kernels instead of n * m. */
#ifndef APR_KERNELS_CUDA_CODECS_CUH
#define APR_KERNELS_CUDA_CODECS_CUH

extern "C" {
#include "kernels/misfits.h"
#include "kernels/ref/codecs.h"
}

#include <cuda_runtime.h>

/* Factors of decoded values: value[row][column] *= factors[row * wide + column / group]. NULL: none. */
typedef struct codec_factors {
    const float *factors;
    int64_t columns, wide, group;
} codec_factors;

/* n_elems is whole blocks, but for APR_Q4. *n_unusual grows by the NaN and infinite values. All pointers are the device's. */
typedef cudaError_t (*launch_decode_fn)(const void *src, float *dst, int64_t n_elems, const codec_factors *factors,
                                        unsigned long long *n_unusual, cudaStream_t stream);
typedef cudaError_t (*launch_encode_fn)(const float *src, void *dst, int64_t n_elems, cudaStream_t stream);

/* NULL: not in this file. */
launch_decode_fn decoder_of_plain(apr_dtype dtype);
launch_decode_fn decoder_of_blocks(apr_dtype dtype);
launch_decode_fn decoder_of_k(apr_dtype dtype);
launch_decode_fn decoder_of_iq(apr_dtype dtype);
launch_encode_fn encoder_of_plain(apr_dtype dtype);
launch_encode_fn encoder_of_blocks(apr_dtype dtype);
launch_encode_fn encoder_of_q4_q5_k(apr_dtype dtype);
launch_encode_fn encoder_of_q6_k(apr_dtype dtype);

/* Rows with a scale each, as apr_encode_fp8_row. */
cudaError_t launch_encode_fp8_rows(const float *src, uint8_t *dst, float *scales, int64_t n_rows, int64_t columns, cudaStream_t stream);

/* As apr_misfits; of the worst, twice its magnitude's bits, and one more when it is positive. */
typedef struct codec_misfits {
    unsigned long long n_unusual, n_beyond, worst;
} codec_misfits;

/* Adds finite values outside the range to *found, and puts its bounds in their place where asked for. */
cudaError_t launch_find_misfits(float *values, int64_t n_elems, apr_range range, bool saturate, codec_misfits *found, cudaStream_t stream);
apr_misfits misfits_of(const codec_misfits *found); /* both on the host */

template <apr_dtype D> struct block_of;
#define X(id, name, class_of, elems, bytes, ...) \
    template <> struct block_of<APR_##id> {      \
        typedef apr_block_##id type;             \
        enum { ELEMS = elems };                  \
    };
APR_DTYPE_LIST(X)
#undef X

#endif
