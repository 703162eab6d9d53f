/* cache_value.cuh - reads single numbers of a cache of any type. */
#ifndef APR_KERNELS_CUDA_CACHE_VALUE_CUH
#define APR_KERNELS_CUDA_CACHE_VALUE_CUH

#include "kernels/cuda/codecs/dtype.cuh"

/* Number i of a row of the cache. */
static __device__ float cache_value(apr_dtype dtype, const uint8_t *row, int64_t i)
{
    if (dtype == APR_F16) return half_float(load_16(row + 2 * i));
    if (dtype == APR_F32) return __uint_as_float(load_32(row + 4 * i));
    if (dtype == APR_BF16) return __uint_as_float(load_16(row + 2 * i) << 16);
    if (dtype == APR_F8_E4M3) return fp8_pair<__NV_E4M3>(__ldg(row + i)).x;
    const uint8_t *const block = row + i / 32 * 34; /* Q8_0 */
    return (float)(int8_t)__ldg(block + 2 + i % 32) * half_float(load_16(block));
}

#endif
