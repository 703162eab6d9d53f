/* plain.c - arrays of plain numbers: floats of 8 to 64 bits, integers, booleans. */
#include "kernels/ref/codecs.h"

/* One element at a time, read by memcpy since a tensor may be at any address. */
#define DECODE_NUMBERS(name, type)                                                             \
    void apr_ref_decode_##name(const void *restrict src, float *restrict dst, int64_t n_elems) \
    {                                                                                          \
        const uint8_t *const bytes = src;                                                      \
        for (int64_t i = 0; i < n_elems; i++) {                                                \
            type value;                                                                        \
            memcpy(&value, bytes + i * (int64_t)sizeof value, sizeof value);                   \
            dst[i] = (float)value;                                                             \
        }                                                                                      \
    }

DECODE_NUMBERS(f64, double)
DECODE_NUMBERS(i8, int8_t)
DECODE_NUMBERS(i16, int16_t)
DECODE_NUMBERS(i32, int32_t)
DECODE_NUMBERS(i64, int64_t)
DECODE_NUMBERS(u8, uint8_t)
DECODE_NUMBERS(u16, uint16_t)
DECODE_NUMBERS(u32, uint32_t)
DECODE_NUMBERS(u64, uint64_t)

#define DECODE_SMALL_FLOATS(name, type, to_f32)                                                \
    void apr_ref_decode_##name(const void *restrict src, float *restrict dst, int64_t n_elems) \
    {                                                                                          \
        const uint8_t *const bytes = src;                                                      \
        for (int64_t i = 0; i < n_elems; i++) {                                                \
            type bits;                                                                         \
            memcpy(&bits, bytes + i * (int64_t)sizeof bits, sizeof bits);                      \
            dst[i] = to_f32(bits);                                                             \
        }                                                                                      \
    }

DECODE_SMALL_FLOATS(f16, uint16_t, apr_f16_to_f32)
DECODE_SMALL_FLOATS(bf16, uint16_t, apr_bf16_to_f32)
DECODE_SMALL_FLOATS(f8_e4m3, uint8_t, apr_e4m3_to_f32)
DECODE_SMALL_FLOATS(f8_e5m2, uint8_t, apr_e5m2_to_f32)
DECODE_SMALL_FLOATS(e8m0, uint8_t, apr_e8m0_to_f32)

#define ENCODE_NUMBERS(name, type, from_f32)                                                   \
    void apr_ref_encode_##name(const float *restrict src, void *restrict dst, int64_t n_elems) \
    {                                                                                          \
        uint8_t *const bytes = dst;                                                            \
        for (int64_t i = 0; i < n_elems; i++) {                                                \
            const type value = from_f32(src[i]);                                               \
            memcpy(bytes + i * (int64_t)sizeof value, &value, sizeof value);                   \
        }                                                                                      \
    }

ENCODE_NUMBERS(f64, double, (double))
ENCODE_NUMBERS(f16, uint16_t, apr_f32_to_f16)
ENCODE_NUMBERS(bf16, uint16_t, apr_f32_to_bf16)
ENCODE_NUMBERS(f8_e4m3, uint8_t, apr_f32_to_e4m3)

void apr_ref_decode_f32(const void *restrict src, float *restrict dst, int64_t n_elems) { memcpy(dst, src, (size_t)n_elems * sizeof *dst); }
void apr_ref_encode_f32(const float *restrict src, void *restrict dst, int64_t n_elems) { memcpy(dst, src, (size_t)n_elems * sizeof *src); }

void apr_ref_decode_bool(const void *restrict src, float *restrict dst, int64_t n_elems)
{
    const uint8_t *const bytes = src;
    for (int64_t i = 0; i < n_elems; i++) dst[i] = bytes[i] != 0 ? 1.0f : 0.0f;
}

void apr_ref_encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems)
{
    float amax = 0.0f;
    for (int64_t i = 0; i < n_elems; i++) {
        const float magnitude = src[i] < 0.0f ? -src[i] : src[i]; /* NaN stays NaN, which is never larger */
        const float bounded = magnitude < FLT_MAX ? magnitude : magnitude > FLT_MAX ? FLT_MAX : magnitude;
        amax = bounded > amax ? bounded : amax;
    }
    *scale = amax > 0.0f ? amax / 448.0f : 1.0f;
    if (*scale == 0.0f) *scale = 0x1p-149f;                                          /* a row of the smallest denormals */
    for (int64_t i = 0; i < n_elems; i++) dst[i] = apr_f32_to_e4m3(src[i] / *scale); /* infinity saturates */
}
