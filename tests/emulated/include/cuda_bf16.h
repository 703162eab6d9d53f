/* cuda_bf16.h - see cuda_fp16.h. */
#ifndef APR_TESTS_EMULATED_CUDA_BF16_H
#define APR_TESTS_EMULATED_CUDA_BF16_H

#include <cuda_runtime.h>

struct __nv_bfloat16 {
    unsigned short bits;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
} __align__(4);

static inline float __bfloat162float(__nv_bfloat16 b) { return apr_bf16_to_f32(b.bits); }
static inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16{apr_f32_to_bf16(f)}; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162{__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

#endif
