/* lanes.h - sixteen float32 lanes, and sums of products in register tiles; shared by matmul.c and attention.c.
 *
 * Everything here is inlined into functions that are compiled once for each instruction set (LANES_CLONES), so the same
 * source becomes AVX-512, AVX2 + FMA and baseline code, and the machine is asked at run time. The files that include this
 * are compiled with -ffp-contract=fast: a fused multiply-add is welcome here, where results are held to bounds. */
#ifndef APR_KERNELS_HOST_LANES_H
#define APR_KERNELS_HOST_LANES_H

#include <stdint.h>

typedef float lanes __attribute__((vector_size(64)));
typedef float lanes_unaligned __attribute__((vector_size(64), aligned(4), may_alias));

#define LANES_INLINE   static inline __attribute__((always_inline))
#define LANES_LOAD(p)  (*(const lanes_unaligned *)(p))
#define LANES_STORE(p) (*(lanes_unaligned *)(p))

enum { N_LANES = 16 };

/* Defines NAME(parameters) as the fastest clone of the inline function BODY that this machine can run. BODY's
 * first two arguments say how many rows and tokens can keep their sums in registers. */
#if defined(__x86_64__)
#define LANES_CLONES(NAME, BODY, PARAMETERS, ...)                                                                            \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) static void NAME##_avx512 PARAMETERS              \
    {                                                                                                                        \
        BODY(4, 6, __VA_ARGS__);                                                                                             \
    }                                                                                                                        \
    __attribute__((target("avx2,fma"))) static void NAME##_avx2 PARAMETERS { BODY(2, 2, __VA_ARGS__); }                      \
    static void NAME##_baseline PARAMETERS { BODY(2, 2, __VA_ARGS__); }                                                      \
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
    static void NAME PARAMETERS { BODY(2, 2, __VA_ARGS__); }
#endif

/* Halves are added to halves: in registers, which a loop over the lanes would leave. */
LANES_INLINE float lanes_sum(const lanes *v)
{
    typedef float eight __attribute__((vector_size(32)));
    typedef float four __attribute__((vector_size(16)));
    const union {
        lanes whole;
        eight half[2];
    } of16 = {.whole = *v};
    const union {
        eight whole;
        four half[2];
    } of8 = {.whole = of16.half[0] + of16.half[1]};
    const four s = of8.half[0] + of8.half[1];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* sums[r][t] of rows[r] . x[t] over n numbers, n_rows <= 4 and n_tokens <= 6 known at compile time. */
LANES_INLINE void lanes_dots(int n_rows, int n_tokens, const float *rows, int64_t row_stride, const float *x, int64_t x_stride, int64_t n,
                             float sums[4][6])
{
    lanes acc[4][6];
    int64_t k = 0;

    for (int r = 0; r < n_rows; r++)
        for (int t = 0; t < n_tokens; t++) acc[r][t] = (lanes){0};
    for (; k + N_LANES <= n; k += N_LANES) {
        lanes w[4];
        for (int r = 0; r < n_rows; r++) w[r] = LANES_LOAD(rows + r * row_stride + k);
        for (int t = 0; t < n_tokens; t++) {
            const lanes v = LANES_LOAD(x + t * x_stride + k);
            for (int r = 0; r < n_rows; r++) acc[r][t] += w[r] * v;
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int t = 0; t < n_tokens; t++) {
            float tail = 0.0f;
            for (int64_t i = k; i < n; i++) tail += rows[r * row_stride + i] * x[t * x_stride + i];
            sums[r][t] = lanes_sum(&acc[r][t]) + tail;
        }
}

#endif
