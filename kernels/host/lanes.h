/* lanes.h - sixteen float32 lanes, and sums of products in register tiles; shared by matmul_floats.c, attention.c and
 * recurrent.c.
 *
 * Everything here is inlined into functions that are compiled once for each instruction set (LANES_CLONES). So one source becomes
 * AVX-512, AVX2 + FMA and baseline code, chosen at run time. The files that include this (except recurrent.c) are compiled with
 * -ffp-contract=fast: results are held to bounds, so a fused multiply-add is allowed. Whatever the vector width, a sum is either sixteen
 * partial sums (for indexes modulo 16, added in halves) or a single chain (lanes_chains). So AVX2 and AVX-512, which both fuse, give the
 * same bits. */
#ifndef APR_KERNELS_HOST_LANES_H
#define APR_KERNELS_HOST_LANES_H

#include <stdint.h>

#define LANES_INLINE      static inline __attribute__((always_inline))
#define LANES_JOIN_(a, b) a##b
#define LANES_JOIN(a, b)  LANES_JOIN_(a, b)

enum { N_LANES = 16 };

/* The register tile of an instruction set. */
typedef struct lanes_shape {
    int bytes;        /* bytes of a vector */
    int rows, tokens; /* of a tile of lanes_dots; at most 4 and 6 */
    int chains;       /* rows of a tile of lanes_chains, which has two vectors of tokens; at most 12 */
} lanes_shape;

/* Dots: 24 sums in 32 registers; 6 of two vectors each in 16; 2 of four vectors each in 16. Chains: 24 in 32 registers and 12 in 16. */
#define LANES_AVX512   ((lanes_shape){64, 4, 6, 12})
#define LANES_AVX2     ((lanes_shape){32, 2, 3, 6})
#define LANES_BASELINE ((lanes_shape){16, 2, 2, 6})

/* Defines NAME(parameters) as the fastest clone of the inline function BODY that this machine can run. BODY's first argument is the
 * shape, a compile-time constant. */
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

/* The sum of sixteen lanes in one or more vectors. Halves are added to halves, which stays in registers; a loop over the lanes would
 * not. */
LANES_INLINE float lanes_sum(const void *sixteen)
{
    typedef float four __attribute__((vector_size(16)));
    four v[4];
    __builtin_memcpy(v, sixteen, sizeof v);
    const four s = (v[0] + v[2]) + (v[1] + v[3]);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

#define LANES_BYTES 64
#include "kernels/host/lanes_width.h"
#define LANES_BYTES 32
#include "kernels/host/lanes_width.h"
#define LANES_BYTES 16
#include "kernels/host/lanes_width.h"

/* sums[r][t] = rows[r] . x[t] over n numbers. n_rows <= 4 and n_tokens <= 6 are compile-time constants. */
LANES_INLINE void lanes_dots(const lanes_shape shape, const int n_rows, const int n_tokens, const float *rows, int64_t row_stride,
                             const float *x, int64_t x_stride, int64_t n, float sums[4][6])
{
    if (shape.bytes == 64) lanes_dots_64(n_rows, n_tokens, rows, row_stride, x, x_stride, n, sums);
    else if (shape.bytes == 32) lanes_dots_32(n_rows, n_tokens, rows, row_stride, x, x_stride, n, sums);
    else lanes_dots_16(n_rows, n_tokens, rows, row_stride, x, x_stride, n, sums);
}

/* kept[r][t] += rows[r] . x[.][t] over n numbers, for as many adjacent tokens as n_vectors hold. Each sum is one chain, number after
 * number, whatever the tile and the vector width. n_rows <= 12 and n_vectors <= 2 are compile-time constants. */
LANES_INLINE void lanes_chains(const lanes_shape shape, const int n_rows, const int n_vectors, const float *rows, int64_t row_stride,
                               const float *x, int64_t n, float *kept)
{
    if (shape.bytes == 64) lanes_chains_64(n_rows, n_vectors, rows, row_stride, x, n, kept);
    else if (shape.bytes == 32) lanes_chains_32(n_rows, n_vectors, rows, row_stride, x, n, kept);
    else lanes_chains_16(n_rows, n_vectors, rows, row_stride, x, n, kept);
}

/* sums[r][t] += rows[r] . x[t] over n numbers, a multiple of 8, in float64. A sum is eight partial ones, for indexes modulo 8, whatever the
 * tile and the vector width; those of a row are sums_stride numbers after those of the row before. n_rows and n_tokens <= 4 are
 * compile-time constants. */
LANES_INLINE void lanes_add_f64(const lanes_shape shape, const int n_rows, const int n_tokens, const double *rows, const double *x,
                                int64_t stride, int64_t n, double *sums, int64_t sums_stride)
{
    if (shape.bytes == 64) lanes_add_f64_64(n_rows, n_tokens, rows, x, stride, n, sums, sums_stride);
    else if (shape.bytes == 32) lanes_add_f64_32(n_rows, n_tokens, rows, x, stride, n, sums, sums_stride);
    else lanes_add_f64_16(n_rows, n_tokens, rows, x, stride, n, sums, sums_stride);
}

/* a . b in float64, in eight partial sums. */
LANES_INLINE double lanes_dot_f64(const lanes_shape shape, const float *a, const float *b, int64_t n)
{
    return shape.bytes == 64 ? lanes_dot_f64_64(a, b, n) : shape.bytes == 32 ? lanes_dot_f64_32(a, b, n) : lanes_dot_f64_16(a, b, n);
}

/* y += factors[0] * rows[0], then += factors[1] * rows[1] and so on, in float64; rows are n numbers. */
LANES_INLINE void lanes_add_rows_f64(const lanes_shape shape, double *y, const double *factors, const double *rows, int64_t n_rows,
                                     int64_t n)
{
    if (shape.bytes == 64) lanes_add_rows_f64_64(y, factors, rows, n_rows, n);
    else if (shape.bytes == 32) lanes_add_rows_f64_32(y, factors, rows, n_rows, n);
    else lanes_add_rows_f64_16(y, factors, rows, n_rows, n);
}

/* Selects lanes of two vectors of four; the second's lanes count from 4. From lanes set one by one, GCC would make single moves. */
#ifdef __clang__
#define LANES_PICK __builtin_shufflevector
#else
typedef int32_t lanes_four_ints __attribute__((vector_size(16)));
#define LANES_PICK(v, w, a, b, c, d) __builtin_shuffle(v, w, (lanes_four_ints){a, b, c, d})
#endif

/* Transposes four rows of n numbers: turned[k][i] = x[i][k]. The four numbers of one k are adjacent; those of the next k follow `stride`
 * numbers later. */
LANES_INLINE void lanes_transpose_4(const float *const x[4], int64_t n, float *turned, int64_t stride)
{
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        lanes_16 v[4];
        for (int i = 0; i < 4; i++) v[i] = *(const lanes_at_16 *)(x[i] + k);
        const lanes_16 low_01 = LANES_PICK(v[0], v[1], 0, 4, 1, 5), high_01 = LANES_PICK(v[0], v[1], 2, 6, 3, 7);
        const lanes_16 low_23 = LANES_PICK(v[2], v[3], 0, 4, 1, 5), high_23 = LANES_PICK(v[2], v[3], 2, 6, 3, 7);
        *(lanes_at_16 *)(turned + k * stride) = LANES_PICK(low_01, low_23, 0, 1, 4, 5);
        *(lanes_at_16 *)(turned + (k + 1) * stride) = LANES_PICK(low_01, low_23, 2, 3, 6, 7);
        *(lanes_at_16 *)(turned + (k + 2) * stride) = LANES_PICK(high_01, high_23, 0, 1, 4, 5);
        *(lanes_at_16 *)(turned + (k + 3) * stride) = LANES_PICK(high_01, high_23, 2, 3, 6, 7);
    }
    for (; k < n; k++)
        for (int i = 0; i < 4; i++) turned[k * stride + i] = x[i][k];
}

/* sums[r] = sums[r] * shrinks[r] + sum over c < n_values: weights[r][c] * values[c], vectors of n numbers. n_rows <= 4 is a compile-time
 * constant. */
LANES_INLINE void lanes_weighted_sum(const lanes_shape shape, const int n_rows, const float *weights, int64_t weight_stride,
                                     const float *values, int64_t value_stride, int64_t n_values, int64_t n, float *sums,
                                     const float *shrinks)
{
    if (shape.bytes == 64) lanes_weighted_sum_64(n_rows, weights, weight_stride, values, value_stride, n_values, n, sums, shrinks);
    else if (shape.bytes == 32) lanes_weighted_sum_32(n_rows, weights, weight_stride, values, value_stride, n_values, n, sums, shrinks);
    else lanes_weighted_sum_16(n_rows, weights, weight_stride, values, value_stride, n_values, n, sums, shrinks);
}

/* y += factor * x */
LANES_INLINE void lanes_add_scaled(const lanes_shape shape, float *y, float factor, const float *x, int64_t n)
{
    if (shape.bytes == 64) lanes_add_scaled_64(y, factor, x, n);
    else if (shape.bytes == 32) lanes_add_scaled_32(y, factor, x, n);
    else lanes_add_scaled_16(y, factor, x, n);
}

#endif
