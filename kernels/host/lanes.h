/* lanes.h - sixteen float32 lanes, and sums of products in register tiles; shared by matmul.c, heads.c, attention.c and recurrent.c.
 *
 * Everything here is inlined into functions that are compiled once for each instruction set (LANES_CLONES), so the same
 * source becomes AVX-512, AVX2 + FMA and baseline code, and the machine is asked at run time. The files that include this
 * (but for recurrent.c) are compiled with -ffp-contract=fast: a fused multiply-add is welcome where results are held to bounds. Whatever
 * the width of a vector, sums are sixteen, for numbers modulo 16, and added in halves: AVX2 and AVX-512, which both fuse, give the same
 * bits. */
#ifndef APR_KERNELS_HOST_LANES_H
#define APR_KERNELS_HOST_LANES_H

#include <stdint.h>

#define LANES_INLINE      static inline __attribute__((always_inline))
#define LANES_JOIN_(a, b) a##b
#define LANES_JOIN(a, b)  LANES_JOIN_(a, b)

enum { N_LANES = 16 };

/* What an instruction set keeps in registers. */
typedef struct lanes_shape {
    int bytes;        /* of a vector */
    int rows, tokens; /* whose products with each other are summed at a time; at most 4 and 6 */
} lanes_shape;

/* 24 sums in 32 registers; 6 of two vectors in 16; 2 of four in 16. */
#define LANES_AVX512   ((lanes_shape){64, 4, 6})
#define LANES_AVX2     ((lanes_shape){32, 2, 3})
#define LANES_BASELINE ((lanes_shape){16, 2, 2})

/* Defines NAME(parameters) as the fastest clone of the inline function BODY that this machine can run. BODY's first argument is the
 * shape, known at compile time. */
#if defined(__x86_64__)
#define LANES_CLONES(NAME, BODY, PARAMETERS, ...)                                                                            \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) static void NAME##_avx512 PARAMETERS              \
    {                                                                                                                        \
        BODY(LANES_AVX512, __VA_ARGS__);                                                                                     \
    }                                                                                                                        \
    __attribute__((target("avx2,fma"))) static void NAME##_avx2 PARAMETERS { BODY(LANES_AVX2, __VA_ARGS__); }                \
    static void NAME##_baseline PARAMETERS { BODY(LANES_BASELINE, __VA_ARGS__); }                                            \
    static void NAME PARAMETERS                                                                                              \
    {                                                                                                                        \
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && \
            __builtin_cpu_supports("avx512dq"))                                                                              \
            NAME##_avx512(__VA_ARGS__);                                                                                      \
        else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) NAME##_avx2(__VA_ARGS__);                  \
        else NAME##_baseline(__VA_ARGS__);                                                                                   \
    }
#else
#define LANES_CLONES(NAME, BODY, PARAMETERS, ...) \
    static void NAME PARAMETERS { BODY(LANES_BASELINE, __VA_ARGS__); }
#endif

/* Of sixteen lanes in a row of vectors. Halves are added to halves: in registers, which a loop over the lanes would leave. */
LANES_INLINE float lanes_sum(const void *sixteen)
{
    typedef float four __attribute__((vector_size(16)));
    four v[4];
    __builtin_memcpy(v, sixteen, sizeof v);
    const four s = (v[0] + v[2]) + (v[1] + v[3]);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* The same of four times sixteen, side by side. */
LANES_INLINE void lanes_sum_4(const float *kept, float sums[4])
{
    typedef float four __attribute__((vector_size(16)));
    four s[4];
    for (int r = 0; r < 4; r++) {
        four v[4];
        __builtin_memcpy(v, kept + r * N_LANES, sizeof v);
        s[r] = (v[0] + v[2]) + (v[1] + v[3]);
    }
    four lane[4];
    for (int l = 0; l < 4; l++) lane[l] = (four){s[0][l], s[1][l], s[2][l], s[3][l]};
    const four all = (lane[0] + lane[2]) + (lane[1] + lane[3]);
    __builtin_memcpy(sums, &all, sizeof all);
}

#define LANES_BYTES 64
#include "kernels/host/lanes_width.h"
#define LANES_BYTES 32
#include "kernels/host/lanes_width.h"
#define LANES_BYTES 16
#include "kernels/host/lanes_width.h"

/* sums[r][t] of rows[r] . x[t] over n numbers, n_rows <= 4 and n_tokens <= 6 known at compile time. */
LANES_INLINE void lanes_dots(const lanes_shape shape, const int n_rows, const int n_tokens, const float *rows, int64_t row_stride,
                             const float *x, int64_t x_stride, int64_t n, float sums[4][6])
{
    if (shape.bytes == 64) lanes_dots_64(n_rows, n_tokens, rows, row_stride, x, x_stride, n, sums);
    else if (shape.bytes == 32) lanes_dots_32(n_rows, n_tokens, rows, row_stride, x, x_stride, n, sums);
    else lanes_dots_16(n_rows, n_tokens, rows, row_stride, x, x_stride, n, sums);
}

/* kept[t][r] += rows[r] * x[t] lane by lane over n numbers, a multiple of sixteen: the sums of lanes_dots on their way, sixteen for a row
 * and a token, rows side by side and tokens kept_stride numbers apart. n_rows <= 4 and n_tokens <= 6 known at compile time. */
LANES_INLINE void lanes_keep(const lanes_shape shape, const int n_rows, const int n_tokens, const float *rows, int64_t row_stride,
                             const float *x, int64_t x_stride, int64_t n, float *kept, int64_t kept_stride)
{
    if (shape.bytes == 64) lanes_keep_64(n_rows, n_tokens, rows, row_stride, x, x_stride, n, kept, kept_stride);
    else if (shape.bytes == 32) lanes_keep_32(n_rows, n_tokens, rows, row_stride, x, x_stride, n, kept, kept_stride);
    else lanes_keep_16(n_rows, n_tokens, rows, row_stride, x, x_stride, n, kept, kept_stride);
}

/* sums[r] = sums[r] * shrinks[r] + sum over c < n_values: weights[r][c] * values[c], of n numbers each; n_rows <= 4 known at compile time.
 */
LANES_INLINE void lanes_gather(const lanes_shape shape, const int n_rows, const float *weights, int64_t weight_stride, const float *values,
                               int64_t value_stride, int64_t n_values, int64_t n, float *sums, const float *shrinks)
{
    if (shape.bytes == 64) lanes_gather_64(n_rows, weights, weight_stride, values, value_stride, n_values, n, sums, shrinks);
    else if (shape.bytes == 32) lanes_gather_32(n_rows, weights, weight_stride, values, value_stride, n_values, n, sums, shrinks);
    else lanes_gather_16(n_rows, weights, weight_stride, values, value_stride, n_values, n, sums, shrinks);
}

/* y += factor * x */
LANES_INLINE void lanes_add_scaled(const lanes_shape shape, float *y, float factor, const float *x, int64_t n)
{
    if (shape.bytes == 64) lanes_add_scaled_64(y, factor, x, n);
    else if (shape.bytes == 32) lanes_add_scaled_32(y, factor, x, n);
    else lanes_add_scaled_16(y, factor, x, n);
}

#endif
