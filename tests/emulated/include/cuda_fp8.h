/* cuda_fp8.h - see cuda_fp16.h. */
#ifndef APR_TESTS_EMULATED_CUDA_FP8_H
#define APR_TESTS_EMULATED_CUDA_FP8_H

#include <cuda_fp16.h>

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

/* Saturating: E5M2 of what is too large is its largest number, and NaN stays NaN. */
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float f, __nv_saturation_t saturation, __nv_fp8_interpretation_t type)
{
    if (type == __NV_E4M3) return isnan(f) ? (__nv_fp8_storage_t)0x7f : apr_f32_to_e4m3(f);
    const uint8_t v = apr_f32_to_e5m2(f);
    if (isnan(f)) return 0x7f;
    return saturation == __NV_SATFINITE && (v & 0x7f) == 0x7c ? (uint8_t)((v & 0x80) | 0x7b) : v;
}

static inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t v, __nv_fp8_interpretation_t type)
{
    return __half_raw{apr_f32_to_f16(type == __NV_E4M3 ? apr_e4m3_to_f32(v) : apr_e5m2_to_f32(v))};
}
static inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t v, __nv_fp8_interpretation_t type)
{
    return __half2_raw{__nv_cvt_fp8_to_halfraw((uint8_t)v, type).x, __nv_cvt_fp8_to_halfraw((uint8_t)(v >> 8), type).x};
}

#endif
