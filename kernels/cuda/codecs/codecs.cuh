/* codecs.cuh - the codecs of kernels/ref on the device: the same arithmetic in the same order, so the same bytes.
 *
 * Files that include this are compiled without contraction to FMA, with exact division and with subnormals (-fmad=false). Decoders write
 * float32 to device memory, encoders read it from there. That is at most 8 bytes of memory bandwidth per weight, little compared to the
 * transfer to the device, and it takes n + m kernels instead of n * m. */
#ifndef APR_KERNELS_CUDA_CODECS_CUH
#define APR_KERNELS_CUDA_CODECS_CUH

extern "C" {
#include "kernels/out_of_range.h"
#include "kernels/ref/codecs.h"
}

#include <cuda_runtime.h>

/* Factors of decoded values: value[row][column] *= factors[row * wide + column / group]. NULL: none. */
typedef struct codec_factors {
    const float *factors;
    int64_t columns, wide, group;
} codec_factors;

/* n_elems is whole blocks, except for APR_Q4. NaN and infinite values are added to *n_nonfinite. All are device pointers. */
typedef cudaError_t (*launch_decode_fn)(const void *src, float *dst, int64_t n_elems, const codec_factors *factors,
                                        unsigned long long *n_nonfinite, cudaStream_t stream);
typedef cudaError_t (*launch_encode_fn)(const float *src, void *dst, int64_t n_elems, cudaStream_t stream);

/* NULL: the type is not in that file. */
launch_decode_fn decoder_of_plain(apr_dtype dtype);
launch_decode_fn decoder_of_blocks(apr_dtype dtype);
launch_decode_fn decoder_of_k(apr_dtype dtype);
launch_decode_fn decoder_of_iq(apr_dtype dtype);
launch_encode_fn encoder_of_plain(apr_dtype dtype);
launch_encode_fn encoder_of_blocks(apr_dtype dtype);
launch_encode_fn encoder_of_q4_q5_k(apr_dtype dtype);
launch_encode_fn encoder_of_q6_k(apr_dtype dtype);
launch_encode_fn encoder_of_steps(apr_dtype dtype);
launch_encode_fn encoder_of_step_scales(apr_dtype dtype);
launch_encode_fn encoder_of_q2_k(apr_dtype dtype);
launch_encode_fn encoder_of_points(apr_dtype dtype);

/* Importance of the columns of one or more consecutive matrices: value e of them has columns[e / matrix * n + e % n]. The first value that
 * is encoded is number `first`. n is whole blocks. */
typedef struct codec_importance {
    const float *columns;
    int64_t n, matrix, first;
} codec_importance;

typedef cudaError_t (*launch_encode_by_fn)(const float *src, const codec_importance *importance, void *dst, int64_t n_elems,
                                           cudaStream_t stream);
launch_encode_by_fn encoder_by_of_blocks(apr_dtype dtype);
launch_encode_by_fn encoder_by_of_q4_q5_k(apr_dtype dtype);
launch_encode_by_fn encoder_by_of_q6_k(apr_dtype dtype);
launch_encode_by_fn encoder_by_of_steps(apr_dtype dtype);
launch_encode_by_fn encoder_by_of_step_scales(apr_dtype dtype);
launch_encode_by_fn encoder_by_of_q2_k(apr_dtype dtype);
launch_encode_by_fn encoder_by_of_points(apr_dtype dtype);
/* codec_workers.cu: the encoder of any type; NULL: no encoder by importance. */
launch_encode_by_fn apr_cuda_encoder_by_of(apr_dtype dtype);
launch_encode_fn apr_cuda_encoder_of(apr_dtype dtype);

/* Rows with a scale each, like apr_encode_fp8_row. */
cudaError_t launch_encode_fp8_rows(const float *src, uint8_t *dst, float *scales, int64_t n_rows, int64_t columns, cudaStream_t stream);

/* Like apr_out_of_range; worst: twice the bits of its magnitude, plus one when it is positive. */
typedef struct codec_out_of_range {
    unsigned long long n_nonfinite, n_out_of_range, worst;
} codec_out_of_range;

/* Adds finite values outside the range to *found, and clamps them if `saturate`. */
cudaError_t launch_find_out_of_range(float *values, int64_t n_elems, apr_range range, bool saturate, codec_out_of_range *found,
                                     cudaStream_t stream);
apr_out_of_range out_of_range_of(const codec_out_of_range *found); /* both on the host */

/* The importance of the block that begins with encoded value `at`. */
static __device__ __forceinline__ const float *importance_of_block(const codec_importance &i, int64_t at)
{
    const int64_t e = i.first + at;
    return i.columns + e / i.matrix * i.n + e % i.n;
}

/* The weight of a value from its importance, as apr_block_weights. */
struct block_weights {
    float mean;
    bool is_plain;
    __device__ __forceinline__ float operator()(float importance) const
    {
        return is_plain ? 1.0f : apr_clamp(apr_clamp(importance, 0.0f, 1e30f) / mean, APR_LEAST_WEIGHT, 1024.0f);
    }
};

/* Called by all threads of `group`; `lane` is a thread's number in its eight, which are all of the group or half of it. */
template <int N> static __device__ __forceinline__ block_weights weights_of_block(unsigned group, int lane, const float *importance)
{
    const float first = importance[0];
    bool all_equal = true;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = lane; i < N; i += 8) {
        const float v = importance[i];
        all_equal = all_equal && v == first;
        sum += apr_clamp(v, 0.0f, 1e30f);
    }
    for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(group, sum, step);
    all_equal = __all_sync(group, all_equal);
    const float mean = sum / (float)N;
    return {mean, all_equal || !(mean > 0x1p-100f)};
}

template <apr_dtype D> struct block_of;
#define X(id, name, class_of, elems, bytes, ...) \
    template <> struct block_of<APR_##id> {      \
        typedef apr_block_##id type;             \
        enum { ELEMS = elems };                  \
    };
APR_DTYPE_LIST(X)
#undef X

#endif
