/* cuda_fp16.h - numbers of 16 bits, by the conversions that formats/number/half.h has and its test goes through. */
#ifndef APR_TESTS_EMULATED_CUDA_FP16_H
#define APR_TESTS_EMULATED_CUDA_FP16_H

#include <cuda_runtime.h>

struct __half_raw {
    unsigned short x;
};

struct __half {
    unsigned short bits;
    __half() = default;
    __half(__half_raw raw) : bits(raw.x) {}
    explicit __half(float f) : bits(apr_f32_to_f16(f)) {}
    operator __half_raw() const { return __half_raw{bits}; }
    explicit operator float() const { return apr_f16_to_f32(bits); }
};
struct __half2_raw {
    unsigned short x, y;
};
struct __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half x_, __half y_) : x(x_), y(y_) {}
    __half2(__half2_raw raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
} __align__(4);

namespace emulated
{
/* Rounded once: to float32, where what is lost leaves its trace in the last bit, and from there to the nearest half. */
static inline __half half_of(double exact)
{
    const float f = (float)exact;
    uint32_t bits = apr_f32_bits(f);
    if (isfinite(exact) && isfinite(f) && (double)f != exact) {
        if (fabs((double)f) > fabs(exact)) bits--;
        bits |= 1;
    }
    return __half(apr_f32_from_bits(bits));
}
} // namespace emulated

static inline float __half2float(__half h) { return apr_f16_to_f32(h.bits); }
static inline __half __float2half_rn(float f) { return __half(f); }
static inline __half __float2half(float f) { return __half(f); }
static inline __half __double2half(double d) { return emulated::half_of(d); }
static inline unsigned short __half_as_ushort(__half h) { return h.bits; }
static inline __half __ushort_as_half(unsigned short u) { return __half(__half_raw{u}); }

static inline __half2 __floats2half2_rn(float x, float y) { return __half2{__half(x), __half(y)}; }
static inline __half2 __float2half2_rn(float f) { return __half2{__half(f), __half(f)}; }
static inline float2 __half22float2(__half2 h) { return float2{__half2float(h.x), __half2float(h.y)}; }
static inline __half2 __low2half2(__half2 h) { return __half2{h.x, h.x}; }
static inline __half2 __high2half2(__half2 h) { return __half2{h.y, h.y}; }
static inline float __low2float(__half2 h) { return __half2float(h.x); }
static inline float __high2float(__half2 h) { return __half2float(h.y); }

/* Sums and products of two FP16 numbers are exact in float64; so is a product plus a number, unless one is 2^31 times the other. */
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    const auto of = [](__half x, __half y, __half z) {
        return emulated::half_of((double)__half2float(x) * (double)__half2float(y) + (double)__half2float(z));
    };
    return __half2{of(a.x, b.x, c.x), of(a.y, b.y, c.y)};
}
static inline __half2 __hsub2(__half2 a, __half2 b) { return __hfma2(b, __float2half2_rn(-1.0f), a); }
static inline __half2 __hmul2(__half2 a, __half2 b) { return __hfma2(a, b, __float2half2_rn(-0.0f)); }

#endif
