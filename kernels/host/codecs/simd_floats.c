/* simd_floats.c - FP8 and FP16, rows of FP8 with their scale, and range checks. */
#include "kernels/host/codecs/simd.h"
#include "kernels/host/codecs/simd_codecs.h"
#include "kernels/ref/codecs.h"

/* ---- FP8 ---- */

/* As apr_f32_to_e4m3. Below 2^-6 the steps are 2^-9: adding the value to 2^14, whose last bit is 2^-9, rounds it to them. */
WIDE_INLINE wide_bits e4m3_of(wide x)
{
    const wide a = wide_abs(x);
    const wide_bits bits = wide_bits_of(a), odd = wide_bits_and(wide_bits_right(bits, 20), wide_bits_set(1));
    const wide_bits rounded = wide_bits_right(wide_bits_add(wide_bits_add(bits, wide_bits_set(0x7ffff)), odd), 20);
    const wide_bits normal = wide_bits_add(rounded, wide_bits_set(0u - (120u << 3)));
    const wide_bits small = wide_bits_add(wide_bits_of(wide_add(a, wide_set(0x1p14f))), wide_bits_set(0u - 0x46800000u));
    wide code = wide_choose(wide_less(a, wide_set(0x1p-6f)), wide_from_bits(small), wide_from_bits(normal));
    code = wide_choose(wide_less(a, wide_set(448.0f)), code, wide_from_bits(wide_bits_set(0x7e)));
    code = wide_choose(wide_differs(a, a), wide_from_bits(wide_bits_set(0x7f)), code);
    return wide_bits_or(wide_bits_of(code), wide_bits_and(wide_bits_right(wide_bits_of(x), 24), wide_bits_set(0x80)));
}

static void encode_f8_e4m3(const float *src, void *dst, int64_t n_elems)
{
    uint8_t *const bytes = dst;
    int64_t i = 0;
    for (; i + WIDE <= n_elems; i += WIDE) wide_bits_store_bytes(bytes + i, e4m3_of(wide_load(src + i)));
    for (; i < n_elems; i++) bytes[i] = apr_f32_to_e4m3(src[i]);
}

/* Normal numbers have the bits of float32 except for the bias; smaller ones are multiples of 2^-9. */
static void decode_f8_e4m3(const void *src, float *dst, int64_t n_elems)
{
    const uint8_t *const bytes = src;
    int64_t i = 0;
    for (; i + WIDE <= n_elems; i += WIDE) {
        const wide_bits code = wide_bits_load_bytes(bytes + i), magnitude = wide_bits_and(code, wide_bits_set(0x7f));
        const wide whole = wide_from_words(magnitude), small = wide_mul(whole, wide_set(0x1p-9f));
        wide x = wide_from_bits(wide_bits_add(wide_bits_left(magnitude, 20), wide_bits_set(120u << 23)));
        x = wide_choose(wide_less(whole, wide_set(8.0f)), small, x);
        x = wide_choose(wide_less(whole, wide_set(127.0f)), x, wide_from_bits(wide_bits_set(0x7fc00000)));
        const wide_bits sign = wide_bits_left(wide_bits_and(code, wide_bits_set(0x80)), 24);
        wide_store(dst + i, wide_from_bits(wide_bits_or(wide_bits_of(x), sign)));
    }
    apr_ref_decode_f8_e4m3(bytes + i, dst + i, n_elems - i);
}

static float largest_magnitude(const float *x, int64_t n)
{
    wide most[4] = {wide_set(0.0f), wide_set(0.0f), wide_set(0.0f), wide_set(0.0f)};
    float lane[WIDE], amax = 0.0f;
    int64_t i = 0;

    for (; i + 4 * WIDE <= n; i += 4 * WIDE)
        for (int k = 0; k < 4; k++) most[k] = wide_max(wide_abs(wide_load(x + i + k * WIDE)), most[k]); /* NaN is never larger */
    wide_store(lane, wide_max(wide_max(most[0], most[1]), wide_max(most[2], most[3])));
    for (int l = 0; l < WIDE; l++) amax = lane[l] > amax ? lane[l] : amax;
    for (; i < n; i++) {
        const float magnitude = x[i] < 0.0f ? -x[i] : x[i];
        amax = magnitude > amax ? magnitude : amax;
    }
    return amax < FLT_MAX ? amax : FLT_MAX;
}

static void encode_fp8_row(const float *src, uint8_t *dst, float *scale, int64_t n_elems)
{
    const float amax = largest_magnitude(src, n_elems), d = amax > 0.0f ? amax / 448.0f : 1.0f;
    int64_t i = 0;

    *scale = d == 0.0f ? 0x1p-149f : d;
    for (; i + WIDE <= n_elems; i += WIDE) wide_bits_store_bytes(dst + i, e4m3_of(wide_div(wide_load(src + i), wide_set(*scale))));
    for (; i < n_elems; i++) dst[i] = apr_f32_to_e4m3(src[i] / *scale);
}

/* ---- ranges ---- */

static bool all_within(const float *x, int64_t n_elems, float low, float high)
{
    const wide at_least = wide_set(low), at_most = wide_set(high);
    int64_t i = 0;

    for (; i + 4 * WIDE <= n_elems; i += 4 * WIDE) {
        wide_mask within[4];
        for (int k = 0; k < 4; k++) {
            const wide v = wide_load(x + i + k * WIDE);
            within[k] = wide_both(wide_at_most(at_least, v), wide_at_most(v, at_most));
        }
        if (!wide_all(wide_both(wide_both(within[0], within[1]), wide_both(within[2], within[3])))) return false;
    }
    for (; i < n_elems; i++)
        if (!(x[i] >= low && x[i] <= high)) return false;
    return true;
}

#ifdef __F16C__

/* ---- with the CPU's own conversion ---- */

/* apr_f16_to_f32 keeps the bits of a NaN; the CPU's conversion would make it quiet. */
WIDE_INLINE void store_from_f16(float *dst, const void *f16)
{
#ifdef __AVX512F__
    const wide x = _mm512_cvtph_ps(_mm256_loadu_si256(f16));
#else
    const wide x = _mm256_cvtph_ps(_mm_loadu_si128(f16));
#endif
    wide_store(dst, x);
    if (!wide_any(wide_differs(x, x))) return;
    for (int i = 0; i < WIDE; i++) {
        uint16_t half;
        memcpy(&half, (const uint8_t *)f16 + 2 * i, sizeof half);
        dst[i] = apr_f16_to_f32(half);
    }
}

static void decode_f16(const void *src, float *dst, int64_t n_elems)
{
    const uint8_t *const bytes = src;
    int64_t i = 0;
    for (; i + WIDE <= n_elems; i += WIDE) store_from_f16(dst + i, bytes + 2 * i);
    apr_ref_decode_f16(bytes + 2 * i, dst + i, n_elems - i);
}

static void encode_f16(const float *src, void *dst, int64_t n_elems)
{
    uint8_t *const bytes = dst;
    int64_t i = 0;
    for (; i + WIDE <= n_elems; i += WIDE) wide_store_f16(bytes + 2 * i, wide_load(src + i));
    apr_ref_encode_f16(src + i, bytes + 2 * i, n_elems - i);
}

/* E5M2 is the upper byte of FP16. */
static void decode_f8_e5m2(const void *src, float *dst, int64_t n_elems)
{
    const uint8_t *const bytes = src;
    uint16_t f16[WIDE];
    int64_t i = 0;
    for (; i + WIDE <= n_elems; i += WIDE) {
        for (int l = 0; l < WIDE; l++) f16[l] = (uint16_t)(bytes[i + l] << 8);
        store_from_f16(dst + i, f16);
    }
    apr_ref_decode_f8_e5m2(bytes + i, dst + i, n_elems - i);
}

#endif

const apr_host_codecs_table WIDE_NAME(apr_simd_floats) = {
    .codecs =
        {
            [APR_F8_E4M3] = {.decode = decode_f8_e4m3, .encode = encode_f8_e4m3},
#ifdef __F16C__
            [APR_F16] = {.decode = decode_f16, .encode = encode_f16},
            [APR_F8_E5M2] = {.decode = decode_f8_e5m2},
#endif
        },
    .encode_fp8_row = encode_fp8_row,
    .all_within = all_within,
};
