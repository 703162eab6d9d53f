/* product_f16.c - products of F16 and BF16 rows and float32 inputs. */
#include "kernels/host/products/product_levels.h"
#include "kernels/host/products/vectors.h"

enum { STEP = 32 };

VEC_INLINE vec_floats floats_from_f16(const uint8_t *p)
{
#if defined(__AVX512BW__)
    return (vec_floats)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif defined(__F16C__)
    return (vec_floats)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#else
    typedef uint16_t f16s __attribute__((vector_size(2 * VEC_LANES)));
    f16s h;
    memcpy(&h, p, sizeof h);
    return vec_from_f16(__builtin_convertvector(h, vec_ints));
#endif
}

VEC_INLINE vec_floats floats_from_bf16(const uint8_t *p)
{
#if defined(__AVX512BW__)
    return (vec_floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16);
#elif defined(__AVX2__)
    return (vec_floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16);
#else
    typedef uint16_t f16s __attribute__((vector_size(2 * VEC_LANES)));
    f16s h;
    memcpy(&h, p, sizeof h);
    return (vec_floats)(__builtin_convertvector(h, vec_ints) << 16);
#endif
}

typedef vec_floats (*widen_fn)(const uint8_t *p);

/* Adds STEP numbers. Those after the last whole step are read from a copy that is padded with zeros. */
VEC_INLINE void add_step(widen_fn widen, const uint8_t *row, const float *x, vec_floats acc[2][VEC_PARTS])
{
    for (int half = 0; half < 2; half++)
        for (int p = 0; p < VEC_PARTS; p++) {
            const int at = 16 * half + p * VEC_LANES;
            acc[half][p] += widen(row + 2 * at) * vec_load_floats(x + at);
        }
}

VEC_INLINE float multiply_floats(widen_fn widen, const uint8_t *row, int64_t n, const float *x)
{
    vec_floats acc[2][VEC_PARTS] = {0};
    int64_t i = 0;

    for (; i + STEP <= n; i += STEP) {
        vec_prefetch(row + 2 * i, 2 * STEP, VEC_AHEAD_F16);
        add_step(widen, row + 2 * i, x + i, acc);
    }
    if (i < n) {
        uint8_t last[2 * STEP] = {0};
        float last_x[STEP] = {0};
        memcpy(last, row + 2 * i, 2 * (size_t)(n - i));
        memcpy(last_x, x + i, sizeof *x * (size_t)(n - i));
        add_step(widen, last, last_x, acc);
    }
    for (int p = 0; p < VEC_PARTS; p++) acc[0][p] += acc[1][p];
    return vec_total(acc[0]);
}

VEC_INLINE void multiply_rows(widen_fn widen, apr_product_rows rows, int64_t n, const float *x, int64_t stride, int n_tokens, float *out,
                              int64_t out_stride)
{
    for (int64_t r = 0; r < rows.count; r++)
        for (int t = 0; t < n_tokens; t++) out[t * out_stride + r] = multiply_floats(widen, rows.first + r * rows.step, n, x + t * stride);
}

void LEVEL_NAME(apr_product_f16) APR_FLOAT_PARAMETERS { multiply_rows(floats_from_f16, rows, n, x, stride, n_tokens, out, out_stride); }

void LEVEL_NAME(apr_product_bf16) APR_FLOAT_PARAMETERS { multiply_rows(floats_from_bf16, rows, n, x, stride, n_tokens, out, out_stride); }
