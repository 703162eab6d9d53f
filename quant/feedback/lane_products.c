/* lane_products.c - four rows of the matrix at a time, their sums in registers. Compiled with -ffp-contract=fast. */
#include "quant/feedback/lane_products.h"

#define INLINE static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));

enum { CHUNK = 256 /* vectors of a pass, which stay in the L1 cache */, ROWS = 4 };

INLINE void four_rows(const float *matrix, int64_t stride, const float *x, int64_t n, float *sums)
{
    lanes *const s = (lanes *)sums;
    lanes a = s[0], b = s[1], c = s[2], d = s[3];

    for (int64_t j = 0; j < n; j++) {
        const lanes v = *(const lanes *)(x + APR_LANES * j);
        a += matrix[j] * v;
        b += matrix[stride + j] * v;
        c += matrix[2 * stride + j] * v;
        d += matrix[3 * stride + j] * v;
    }
    s[0] = a;
    s[1] = b;
    s[2] = c;
    s[3] = d;
}

INLINE void one_row(const float *matrix, const float *x, int64_t n, float *sums)
{
    lanes a = *(lanes *)sums;
    for (int64_t j = 0; j < n; j++) a += matrix[j] * *(const lanes *)(x + APR_LANES * j);
    *(lanes *)sums = a;
}

INLINE void products(const float *matrix, int64_t stride, int64_t n_rows, const float *x, int64_t n, float *sums)
{
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t now = n - first < CHUNK ? n - first : CHUNK;
        int64_t k = 0;
        for (; k + ROWS <= n_rows; k += ROWS)
            four_rows(matrix + k * stride + first, stride, x + APR_LANES * first, now, sums + APR_LANES * k);
        for (; k < n_rows; k++) one_row(matrix + k * stride + first, x + APR_LANES * first, now, sums + APR_LANES * k);
    }
}

INLINE void outer(const float *a, const float *b, int64_t stride, int64_t n, float sums[APR_OUTER_ROWS][APR_OUTER_COLUMNS])
{
    lanes s[APR_OUTER_ROWS][2] = {0};

    for (int64_t t = 0; t < n; t++, a += stride, b += stride) {
        const lanes low = *(const lanes *)b, high = *(const lanes *)(b + APR_LANES);
        for (int i = 0; i < APR_OUTER_ROWS; i++) {
            s[i][0] += a[i] * low;
            s[i][1] += a[i] * high;
        }
    }
    for (int i = 0; i < APR_OUTER_ROWS; i++) {
        *(lanes *)sums[i] = s[i][0];
        *(lanes *)(sums[i] + APR_LANES) = s[i][1];
    }
}

/* Compiles both functions for several instruction sets; the best one is chosen at each call. */
#if defined(__x86_64__)
#define CLONES(NAME, BODY, PARAMETERS, ...)                                                                 \
    __attribute__((target("avx512f,avx2,fma"))) static void NAME##_avx512 PARAMETERS { BODY(__VA_ARGS__); } \
    __attribute__((target("avx2,fma"))) static void NAME##_avx2 PARAMETERS { BODY(__VA_ARGS__); }           \
    void NAME PARAMETERS                                                                                    \
    {                                                                                                       \
        if (__builtin_cpu_supports("avx512f")) NAME##_avx512(__VA_ARGS__);                                  \
        else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) NAME##_avx2(__VA_ARGS__); \
        else BODY(__VA_ARGS__);                                                                             \
    }
#else
#define CLONES(NAME, BODY, PARAMETERS, ...) \
    void NAME PARAMETERS { BODY(__VA_ARGS__); }
#endif

CLONES(apr_lane_products, products, (const float *matrix, int64_t stride, int64_t n_rows, const float *x, int64_t n, float *sums), matrix,
       stride, n_rows, x, n, sums)
CLONES(apr_outer_products, outer,
       (const float *a, const float *b, int64_t stride, int64_t n, float sums[APR_OUTER_ROWS][APR_OUTER_COLUMNS]), a, b, stride, n, sums)
