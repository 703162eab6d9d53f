/* kernels/host/lanes.h: every width of vector adds the same sixteen sums, whatever the tile and wherever a row ends. */
#include "kernels/host/lanes.h"
#include "tests/support/ops_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 4, TOKENS = 6, MOST = 85 };

/* Not compiled with fused operations: here all widths give the same bits. */
typedef struct tile {
    const float *rows, *x; /* [ROWS, n], [TOKENS, n] */
    int64_t n;
    float dots[3][4][6];           /* of the whole tile, of 2 x 3 and of 1 x 1 */
    float chains[2][ROWS][TOKENS]; /* of the whole tile, in two goes, and of two rows with one vector of tokens */
    float gathered[ROWS * MOST], added[MOST];
} tile;

/* Inputs side by side, as many as n_vectors hold, the last one repeated; front of a row's numbers, then the others. */
LANES_INLINE void fill_chains(const lanes_shape shape, const int n_rows, const int n_vectors, const tile *t, float chains[ROWS][TOKENS])
{
    const int width = n_vectors * shape.bytes / 4;
    const int64_t front = t->n / 2;
    float turned[MOST * 32], kept[(ROWS + 1) * 32] = {0};

    for (int i = 0; i < width; i += 4) {
        const float *x[4];
        for (int k = 0; k < 4; k++) x[k] = t->x + (i + k < TOKENS ? i + k : TOKENS - 1) * t->n;
        lanes_transpose_4(x, t->n, turned + i, width);
    }
    lanes_chains(shape, n_rows, n_vectors, t->rows, t->n, turned, front, kept);
    lanes_chains(shape, n_rows, n_vectors, t->rows + front, t->n, turned + front * width, t->n - front, kept);
    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i < TOKENS && i < 4 * n_vectors; i++) chains[r][i] = kept[r * width + i];
    for (int i = 0; i < width; i++) assert_true(kept[n_rows * width + i] == 0.0f);
}

LANES_INLINE void fill_body(const lanes_shape shape, tile *t)
{
    static const float shrinks[ROWS] = {0.5f, 1.0f, 0.0f, 0.25f};
    lanes_dots(shape, 4, 6, t->rows, t->n, t->x, t->n, t->n, t->dots[0]);
    lanes_dots(shape, 2, 3, t->rows, t->n, t->x, t->n, t->n, t->dots[1]);
    lanes_dots(shape, 1, 1, t->rows, t->n, t->x, t->n, t->n, t->dots[2]);
    memset(t->chains, 0, sizeof t->chains);
    fill_chains(shape, ROWS, 2, t, t->chains[0]);
    fill_chains(shape, 2, 1, t, t->chains[1]);
    for (int64_t i = 0; i < 4 * t->n; i++) t->gathered[i] = t->rows[i];
    lanes_weighted_sum(shape, 4, t->rows, t->n, t->x, t->n, t->n < TOKENS ? t->n : TOKENS, t->n, t->gathered, shrinks);
    memcpy(t->added, t->x, (size_t)t->n * sizeof *t->added);
    lanes_add_scaled(shape, t->added, 0.75f, t->rows, t->n);
}

LANES_CLONES(fill, fill_body, (tile * t), t)

static void each_length(void (*check_bounds)(const tile *t))
{
    static const int64_t lengths[] = {1, 7, 8, 15, 16, 17, 32, 40, 64, 72, MOST};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        float *const rows = ops_noises(ROWS * lengths[i]), *const x = ops_noises(TOKENS * lengths[i]);
        const tile t = {.rows = rows, .x = x, .n = lengths[i]};
        check_bounds(&t);
        free(rows);
        free(x);
    }
}

static void check_sums(const tile *empty)
{
    tile t = *empty;
    fill(&t);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < TOKENS; k++) {
            double sum = 0.0, size = 0.0;
            for (int64_t i = 0; i < t.n; i++) {
                sum += (double)t.rows[r * t.n + i] * (double)t.x[k * t.n + i];
                size += fabs((double)t.rows[r * t.n + i] * (double)t.x[k * t.n + i]);
            }
            assert_float_equal(t.dots[0][r][k], sum, 1e-6 * size);
        }
    for (int r = 0; r < 2; r++) assert_memory_equal(t.dots[0][r], t.dots[1][r], 3 * sizeof(float));
    assert_memory_equal(t.dots[0][0], t.dots[2][0], sizeof(float));
}

static void sums_are_those_of_products_whatever_the_tile(void **state)
{
    (void)state;
    each_length(check_sums);
}

static float chain_of(const float *row, const float *x, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) sum += row[i] * x[i];
    return sum;
}

/* One vector of four tokens is what every width has. */
static void check_chains(const tile *empty)
{
    tile t = *empty;
    fill(&t);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < TOKENS; k++) {
            const float *const row = t.rows + r * t.n, *const x = t.x + k * t.n;
            const int64_t front = t.n / 2;
            const float sum = chain_of(row, x, front) + chain_of(row + front, x + front, t.n - front);
            assert_memory_equal(&sum, &t.chains[0][r][k], sizeof sum);
            if (r < 2 && k < 4) assert_memory_equal(&sum, &t.chains[1][r][k], sizeof sum);
        }
}

static void chains_are_added_number_after_number(void **state)
{
    (void)state;
    each_length(check_chains);
}

static void check_ranges(const tile *empty)
{
    static const double shrinks[ROWS] = {0.5, 1.0, 0.0, 0.25};
    tile t = *empty;
    fill(&t);
    for (int64_t i = 0; i < t.n; i++) {
        assert_float_equal(t.added[i], (double)t.x[i] + 0.75 * (double)t.rows[i], 1e-6);
        for (int r = 0; r < ROWS; r++) {
            double sum = shrinks[r] * (double)t.rows[r * t.n + i];
            for (int c = 0; c < TOKENS && c < t.n; c++) sum += (double)t.rows[r * t.n + c] * (double)t.x[c * t.n + i];
            assert_float_equal(t.gathered[r * t.n + i], sum, 1e-5);
        }
    }
}

static void weighed_rows_are_gathered_and_added(void **state)
{
    (void)state;
    each_length(check_ranges);
}

#ifdef __x86_64__
static void check_widths(const tile *empty)
{
    tile narrow = *empty, wide = *empty;
    fill_baseline(&narrow);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        fill_avx2(&wide);
        assert_memory_equal(&narrow, &wide, sizeof wide);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
        wide = *empty;
        fill_avx512(&wide);
        assert_memory_equal(&narrow, &wide, sizeof wide);
    }
}

static void vectors_of_16_32_and_64_bytes_give_the_same_bits(void **state)
{
    (void)state;
    each_length(check_widths);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_products_whatever_the_tile),
        cmocka_unit_test(chains_are_added_number_after_number),
        cmocka_unit_test(weighed_rows_are_gathered_and_added),
#ifdef __x86_64__
        cmocka_unit_test(vectors_of_16_32_and_64_bytes_give_the_same_bits),
#endif
    };
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
