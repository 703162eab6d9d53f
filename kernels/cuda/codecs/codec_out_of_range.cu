/* codec_out_of_range.cu - decoded values out of a type's range: counted as in kernels/out_of_range.c, and clamped on request. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/device/launch.cuh"

enum { THREADS = 256, EACH = 4 };

/* Magnitude, then a positive sign: the larger of two such keys is the worse value. */
static __device__ __forceinline__ unsigned long long key_of(float x)
{
    const uint32_t bits = apr_f32_bits(x);
    return (unsigned long long)(bits & 0x7fffffff) << 1 | (bits >> 31 ^ 1);
}

static __global__ void __launch_bounds__(THREADS)
    k_find_out_of_range(float *values, int64_t n_elems, float low, float high, bool saturate, codec_out_of_range *found)
{
    const int64_t first = (int64_t)blockIdx.x * (THREADS * EACH) + threadIdx.x;
    unsigned long long worst = 0;
    int n = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int64_t i = first + k * THREADS;
        if (i >= n_elems) break;
        const float x = values[i];
        if (!((x > high || x < low) && x <= FLT_MAX && x >= -FLT_MAX)) continue;
        const unsigned long long key = key_of(x);
        worst = key > worst ? key : worst;
        n++;
        if (saturate) values[i] = x < 0.0f ? low : high;
    }
    if (n == 0) return;
    atomicAdd(&found->n_out_of_range, (unsigned long long)n);
    atomicMax(&found->worst, worst);
}

cudaError_t launch_find_out_of_range(float *values, int64_t n_elems, apr_range range, bool saturate, codec_out_of_range *found,
                                     cudaStream_t stream)
{
    const unsigned n = blocks_of(n_elems, THREADS * EACH);
    k_find_out_of_range<<<n, THREADS, 0, stream>>>(values, n_elems, range.low, range.high, saturate, found);
    return cudaGetLastError();
}

apr_out_of_range out_of_range_of(const codec_out_of_range *found)
{
    const uint32_t magnitude = (uint32_t)(found->worst >> 1), negative = (uint32_t)(found->worst & 1) ^ 1;
    apr_out_of_range m = {(int64_t)found->n_nonfinite, (int64_t)found->n_out_of_range, 0.0f};
    if (magnitude != 0) m.worst = apr_f32_from_bits(magnitude | negative << 31);
    return m;
}
