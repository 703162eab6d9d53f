/* encode_plain.cu - float32 to plain floats, and FP8 rows with a scale each. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/reduce.cuh"

enum { THREADS = 256, EACH = 4 };

template <apr_dtype D> struct number_of;
template <> struct number_of<APR_F16> {
    typedef uint16_t type;
    static __device__ type of(float x) { return apr_f32_to_f16(x); }
};
template <> struct number_of<APR_BF16> {
    typedef uint16_t type;
    static __device__ type of(float x) { return apr_f32_to_bf16(x); }
};
template <> struct number_of<APR_F8_E4M3> {
    typedef uint8_t type;
    static __device__ type of(float x) { return apr_f32_to_e4m3(x); }
};
template <> struct number_of<APR_F64> {
    typedef double type;
    /* A NaN keeps its payload and becomes quiet, as on the host. */
    static __device__ type of(float x)
    {
        const uint64_t bits = apr_f32_bits(x);
        if (x == x) return (double)x;
        return __longlong_as_double((long long)((bits & 0x80000000u) << 32 | 0x7ff8000000000000u | (bits & 0x3fffff) << 29));
    }
};

template <apr_dtype D>
static __global__ void __launch_bounds__(THREADS) k_encode_plain(const float *src, typename number_of<D>::type *dst, int64_t n_elems)
{
    const int64_t first = (int64_t)blockIdx.x * (THREADS * EACH) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (first + k * THREADS < n_elems) dst[first + k * THREADS] = number_of<D>::of(src[first + k * THREADS]);
}

template <apr_dtype D> static cudaError_t launch_plain(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const unsigned n = blocks_of(n_elems, THREADS * EACH);
    k_encode_plain<D><<<n, THREADS, 0, stream>>>(src, (typename number_of<D>::type *)dst, n_elems);
    return cudaGetLastError();
}

static cudaError_t launch_copy(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    return cudaMemcpyAsync(dst, src, (size_t)n_elems * sizeof *src, cudaMemcpyDeviceToDevice, stream);
}

launch_encode_fn encoder_of_plain(apr_dtype dtype)
{
    switch (dtype) {
    case APR_F32: return launch_copy;
    case APR_F16: return launch_plain<APR_F16>;
    case APR_BF16: return launch_plain<APR_BF16>;
    case APR_F64: return launch_plain<APR_F64>;
    case APR_F8_E4M3: return launch_plain<APR_F8_E4M3>;
    default: return nullptr;
    }
}

/* One row per thread block: first the largest magnitude (NaN is ignored, infinity is the largest number), then all values. */
static __global__ void __launch_bounds__(THREADS) k_encode_fp8_rows(const float *src, uint8_t *dst, float *scales, int64_t columns)
{
    __shared__ float of_warp[THREADS / 32];
    const float *const row = src + blockIdx.x * columns;
    float amax = 0.0f;

    for (int64_t i = threadIdx.x; i < columns; i += THREADS) {
        const float magnitude = apr_f32_from_bits(apr_f32_bits(row[i]) & 0x7fffffff);
        const float bounded = magnitude < FLT_MAX ? magnitude : magnitude > FLT_MAX ? FLT_MAX : magnitude;
        amax = bounded > amax ? bounded : amax;
    }
    amax = block_max<THREADS>(amax, of_warp);

    float scale = amax > 0.0f ? amax / 448.0f : 1.0f;
    if (scale == 0.0f) scale = 0x1p-149f;
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int64_t i = threadIdx.x; i < columns; i += THREADS) {
        const float x = row[i];
        dst[blockIdx.x * columns + i] = apr_f32_to_e4m3(x == x ? x / scale : x); /* a division would lose the sign of a NaN */
    }
}

cudaError_t launch_encode_fp8_rows(const float *src, uint8_t *dst, float *scales, int64_t n_rows, int64_t columns, cudaStream_t stream)
{
    k_encode_fp8_rows<<<(unsigned)n_rows, THREADS, 0, stream>>>(src, dst, scales, columns);
    return cudaGetLastError();
}
