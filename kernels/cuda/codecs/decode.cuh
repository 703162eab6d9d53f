/* decode.cuh - the kernel that all decoders share: a thread decodes one value of a block, four times. */
#ifndef APR_KERNELS_CUDA_DECODE_CUH
#define APR_KERNELS_CUDA_DECODE_CUH

#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/launch.cuh"

/* Value j of a block. */
template <apr_dtype D> __device__ float value_at(const typename block_of<D>::type &block, int j);

enum { DECODE_THREADS = 256, DECODE_EACH = 4 };

template <apr_dtype D>
__global__ void __launch_bounds__(DECODE_THREADS)
    k_decode(const void *src, float *dst, int64_t n_elems, codec_factors factors, unsigned long long *n_nonfinite)
{
    const typename block_of<D>::type *const blocks = (const typename block_of<D>::type *)src;
    const int64_t first = (int64_t)blockIdx.x * (DECODE_THREADS * DECODE_EACH) + threadIdx.x;
    int n = 0;
#pragma unroll
    for (int k = 0; k < DECODE_EACH; k++) {
        const int64_t i = first + k * DECODE_THREADS;
        if (i >= n_elems) break;
        float value = value_at<D>(blocks[i / block_of<D>::ELEMS], (int)(i % block_of<D>::ELEMS));
        if (factors.factors != nullptr && value == value) /* a NaN keeps its bits, as on the host */
            value *= factors.factors[i / factors.columns * factors.wide + i % factors.columns / factors.group];
        n += (apr_f32_bits(value) & 0x7f800000) == 0x7f800000;
        dst[i] = value;
    }
    if (n > 0) atomicAdd(n_nonfinite, (unsigned long long)n);
}

template <apr_dtype D>
cudaError_t launch_decode(const void *src, float *dst, int64_t n_elems, const codec_factors *factors, unsigned long long *n_nonfinite,
                          cudaStream_t stream)
{
    const int64_t per_grid_block = DECODE_THREADS * DECODE_EACH;
    k_decode<D><<<blocks_of(n_elems, per_grid_block), DECODE_THREADS, 0, stream>>>(src, dst, n_elems, *factors, n_nonfinite);
    return cudaGetLastError();
}

#define DECODER_CASE(id) \
    case APR_##id:       \
        return launch_decode<APR_##id>;
#define VALUE_AT(id) template <> __device__ __forceinline__ float value_at<APR_##id>(const apr_block_##id &block, int j)

#endif
