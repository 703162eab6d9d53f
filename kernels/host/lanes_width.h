/* lanes_width.h - the functions of lanes.h for vectors of LANES_BYTES bytes. lanes.h includes it once for each width, so it has no
 * include guard.
 *
 * Sixteen lanes are one vector of 64 bytes, two of 32 or four of 16. A compiler keeps a vector that is wider than its registers in
 * memory; it keeps an array of narrower ones in registers once loops over them are unrolled. */
#define LANES_OF(name) LANES_JOIN(name, LANES_BYTES)

enum { LANES_OF(LANES_PER_) = LANES_BYTES / 4, LANES_OF(LANES_PARTS_) = 64 / LANES_BYTES };

typedef float LANES_OF(lanes_) __attribute__((vector_size(LANES_BYTES)));
typedef float LANES_OF(lanes_at_) __attribute__((vector_size(LANES_BYTES), aligned(4), may_alias));

/* See lanes_dots. One part after another, so that few registers besides the sums are needed. */
LANES_INLINE void LANES_OF(lanes_dots_)(const int n_rows, const int n_tokens, const float *rows, int64_t row_stride, const float *x,
                                        int64_t x_stride, int64_t n, float sums[4][6])
{
    LANES_OF(lanes_) acc[4][6][LANES_OF(LANES_PARTS_)];
    int64_t k = 0;

    for (int r = 0; r < n_rows; r++)
        for (int t = 0; t < n_tokens; t++)
            for (int p = 0; p < LANES_OF(LANES_PARTS_); p++) acc[r][t][p] = (LANES_OF(lanes_)){0};
    for (; k + N_LANES <= n; k += N_LANES)
        for (int p = 0; p < LANES_OF(LANES_PARTS_); p++) {
            const int64_t at = k + p * LANES_OF(LANES_PER_);
            LANES_OF(lanes_) w[4];
            for (int r = 0; r < n_rows; r++) w[r] = *(const LANES_OF(lanes_at_) *)(rows + r * row_stride + at);
            for (int t = 0; t < n_tokens; t++) {
                const LANES_OF(lanes_) v = *(const LANES_OF(lanes_at_) *)(x + t * x_stride + at);
                for (int r = 0; r < n_rows; r++) acc[r][t][p] += w[r] * v;
            }
        }
    for (int r = 0; r < n_rows; r++)
        for (int t = 0; t < n_tokens; t++) {
            float tail = 0.0f;
            for (int64_t i = k; i < n; i++) tail += rows[r * row_stride + i] * x[t * x_stride + i];
            sums[r][t] = lanes_sum(acc[r][t]) + tail;
        }
}

/* See lanes_chains. Each number of a row is multiplied with all lanes at once, so no sums across lanes are needed. */
LANES_INLINE void LANES_OF(lanes_chains_)(const int n_rows, const int n_vectors, const float *rows, int64_t row_stride, const float *x,
                                          int64_t n, float *kept)
{
    const int64_t width = n_vectors * LANES_OF(LANES_PER_);
    LANES_OF(lanes_) acc[12][2];

    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i < n_vectors; i++) acc[r][i] = (LANES_OF(lanes_)){0};
    for (int64_t k = 0; k < n; k++) {
        LANES_OF(lanes_) v[2];
        for (int i = 0; i < n_vectors; i++) v[i] = *(const LANES_OF(lanes_at_) *)(x + k * width + i * LANES_OF(LANES_PER_));
        for (int r = 0; r < n_rows; r++)
            for (int i = 0; i < n_vectors; i++) acc[r][i] += rows[r * row_stride + k] * v[i];
    }
    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i < n_vectors; i++) *(LANES_OF(lanes_at_) *)(kept + r * width + i * LANES_OF(LANES_PER_)) += acc[r][i];
}

typedef double LANES_OF(lanes_f64_) __attribute__((vector_size(LANES_BYTES)));
typedef float LANES_OF(lanes_half_at_) __attribute__((vector_size(LANES_BYTES / 2), aligned(4), may_alias));
typedef double LANES_OF(lanes_f64_at_) __attribute__((vector_size(LANES_BYTES), aligned(8), may_alias));

/* See lanes_add_f64. The columns of one vector after those of another, so that a sum needs one register at a time. */
LANES_INLINE void LANES_OF(lanes_add_f64_)(const int n_rows, const int n_tokens, const double *rows, const double *x, int64_t stride,
                                           int64_t n, double *sums, int64_t sums_stride)
{
    enum { PER = LANES_BYTES / 8 };

    for (int p = 0; p < 8; p += PER) {
        LANES_OF(lanes_f64_) acc[4][4];
        for (int r = 0; r < n_rows; r++)
            for (int t = 0; t < n_tokens; t++) acc[r][t] = *(const LANES_OF(lanes_f64_at_) *)(sums + r * sums_stride + t * 8 + p);
        for (int64_t k = p; k < n; k += 8) {
            LANES_OF(lanes_f64_) w[4];
            for (int r = 0; r < n_rows; r++) w[r] = *(const LANES_OF(lanes_f64_at_) *)(rows + r * stride + k);
            for (int t = 0; t < n_tokens; t++) {
                const LANES_OF(lanes_f64_) v = *(const LANES_OF(lanes_f64_at_) *)(x + t * stride + k);
                for (int r = 0; r < n_rows; r++) acc[r][t] += w[r] * v;
            }
        }
        for (int r = 0; r < n_rows; r++)
            for (int t = 0; t < n_tokens; t++) *(LANES_OF(lanes_f64_at_) *)(sums + r * sums_stride + t * 8 + p) = acc[r][t];
    }
}

/* See lanes_dot_f64. */
LANES_INLINE double LANES_OF(lanes_dot_f64_)(const float *a, const float *b, int64_t n)
{
    enum { PER = LANES_BYTES / 8, PARTS = 8 / PER };
    LANES_OF(lanes_f64_) acc[PARTS];
    double eight[8], tail = 0.0;
    int64_t i = 0;

    for (int p = 0; p < PARTS; p++) acc[p] = (LANES_OF(lanes_f64_)){0};
    for (; i + 8 <= n; i += 8)
        for (int p = 0; p < PARTS; p++)
            acc[p] += __builtin_convertvector(*(const LANES_OF(lanes_half_at_) *)(a + i + p * PER), LANES_OF(lanes_f64_)) *
                      __builtin_convertvector(*(const LANES_OF(lanes_half_at_) *)(b + i + p * PER), LANES_OF(lanes_f64_));
    for (; i < n; i++) tail += (double)a[i] * (double)b[i];
    __builtin_memcpy(eight, acc, sizeof eight);
    return ((eight[0] + eight[4]) + (eight[2] + eight[6])) + ((eight[1] + eight[5]) + (eight[3] + eight[7])) + tail;
}

/* y[d] += factors[r] * rows[r][d] for each row, of n_vectors vectors that stay in registers. */
LANES_INLINE void LANES_OF(lanes_add_vectors_f64_)(const int n_vectors, double *y, const double *factors, const double *rows,
                                                   int64_t n_rows, int64_t n)
{
    enum { PER = LANES_BYTES / 8 };
    LANES_OF(lanes_f64_) acc[8];

    for (int i = 0; i < n_vectors; i++) acc[i] = *(const LANES_OF(lanes_f64_at_) *)(y + i * PER);
    for (int64_t r = 0; r < n_rows; r++)
        for (int i = 0; i < n_vectors; i++) acc[i] += factors[r] * *(const LANES_OF(lanes_f64_at_) *)(rows + r * n + i * PER);
    for (int i = 0; i < n_vectors; i++) *(LANES_OF(lanes_f64_at_) *)(y + i * PER) = acc[i];
}

/* See lanes_add_rows_f64. */
LANES_INLINE void LANES_OF(lanes_add_rows_f64_)(double *y, const double *factors, const double *rows, int64_t n_rows, int64_t n)
{
    enum { PER = LANES_BYTES / 8 };
    int64_t d = 0;

    for (; d + 8 * PER <= n; d += 8 * PER) LANES_OF(lanes_add_vectors_f64_)(8, y + d, factors, rows + d, n_rows, n);
    for (; d + PER <= n; d += PER) LANES_OF(lanes_add_vectors_f64_)(1, y + d, factors, rows + d, n_rows, n);
    for (; d < n; d++)
        for (int64_t r = 0; r < n_rows; r++) y[d] += factors[r] * rows[r * n + d];
}

/* See lanes_weighted_sum: 32 numbers of each row are in registers, or 16 where there are sixteen registers of 16 bytes. */
LANES_INLINE void LANES_OF(lanes_weighted_sum_)(const int n_rows, const float *weights, int64_t weight_stride, const float *values,
                                                int64_t value_stride, int64_t n_values, int64_t n, float *sums, const float *shrinks)
{
    enum { VECTORS = LANES_BYTES >= 32 ? 128 / LANES_BYTES : 4, STEP = VECTORS * LANES_BYTES / 4 };
    int64_t d = 0;

    for (; d + STEP <= n; d += STEP) {
        LANES_OF(lanes_) acc[4][VECTORS];
        for (int r = 0; r < n_rows; r++)
            for (int i = 0; i < VECTORS; i++)
                acc[r][i] = *(const LANES_OF(lanes_at_) *)(sums + r * n + d + i * LANES_OF(LANES_PER_)) * shrinks[r];
        for (int64_t c = 0; c < n_values; c++)
            for (int i = 0; i < VECTORS; i++) {
                const LANES_OF(lanes_) v = *(const LANES_OF(lanes_at_) *)(values + c * value_stride + d + i * LANES_OF(LANES_PER_));
                for (int r = 0; r < n_rows; r++) acc[r][i] += weights[r * weight_stride + c] * v;
            }
        for (int r = 0; r < n_rows; r++)
            for (int i = 0; i < VECTORS; i++) *(LANES_OF(lanes_at_) *)(sums + r * n + d + i * LANES_OF(LANES_PER_)) = acc[r][i];
    }
    for (; d < n; d++)
        for (int r = 0; r < n_rows; r++) {
            float sum = sums[r * n + d] * shrinks[r];
            for (int64_t c = 0; c < n_values; c++) sum += weights[r * weight_stride + c] * values[c * value_stride + d];
            sums[r * n + d] = sum;
        }
}

/* See lanes_add_scaled. */
LANES_INLINE void LANES_OF(lanes_add_scaled_)(float *y, float factor, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES_OF(LANES_PER_) <= n; i += LANES_OF(LANES_PER_))
        *(LANES_OF(lanes_at_) *)(y + i) = *(const LANES_OF(lanes_at_) *)(y + i) + factor * *(const LANES_OF(lanes_at_) *)(x + i);
    for (; i < n; i++) y[i] += factor * x[i];
}

#undef LANES_OF
#undef LANES_BYTES
