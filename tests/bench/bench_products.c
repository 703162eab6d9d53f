/* bench_products.c - how fast one core multiplies rows as they are stored with a token, in GB/s of weights, at each level of CPU: rows
 * that stay in the second-level cache, and a matrix of 64 MiB that does not. And how many products of many tokens it makes.
 *
 * usage: bench_products [TYPE...]. Processor time, the best of seven runs, as others only take time away. */
#include "kernels/host/products/products.h"

#include "formats/base/random.h"
#include "kernels/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { COLUMNS = 2048, SMALL = 256 << 10, LARGE = 64 << 20, RUNS = 7, TOGETHER = 8 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds for all rows once. */
static double once(const apr_products_table *table, const apr_product *product, const uint8_t *rows, int64_t n_rows, int64_t row_bytes,
                   const float *x, int n_tokens, float *total)
{
    static apr_product_tile tiles[APR_PRODUCT_TOKENS * COLUMNS / APR_PRODUCT_COLUMNS];
    const double start = now_s();
    float sums[APR_PRODUCT_TOKENS * TOGETHER];

    for (int t = 0; t < n_tokens && product->rounded != NULL; t++)
        table->round(x + t * COLUMNS, COLUMNS, product->order, tiles + t * (COLUMNS / APR_PRODUCT_COLUMNS));
    for (int64_t r = 0; r < n_rows; r += TOGETHER) {
        const apr_product_rows some = {rows + r * row_bytes, row_bytes, n_rows - r < TOGETHER ? n_rows - r : TOGETHER};
        if (product->rounded != NULL) product->rounded(some, COLUMNS, tiles, COLUMNS / APR_PRODUCT_COLUMNS, n_tokens, sums, TOGETHER);
        else product->plain(some, COLUMNS, x, COLUMNS, n_tokens, sums, TOGETHER);
        *total += sums[0];
    }
    return now_s() - start;
}

/* Billions of products a second of 16-row blocks of `rows` with N_WIDE tokens: decoding them counts, rounding inputs does not. */
static double wide_rate(const apr_products_table *table, apr_dtype dtype, const uint8_t *rows, const float *x)
{
    enum { N_WIDE = 64, GROUPS = 16 * COLUMNS / APR_PRODUCT_COLUMNS, BLOCKS = 16 };
    static apr_product_gemm_rows wide[GROUPS];
    static apr_product_gemm_inputs inputs[N_WIDE / APR_PRODUCT_GEMM_TOKENS][GROUPS];
    static float out[N_WIDE * APR_PRODUCT_GEMM_ROWS];
    const apr_product *const product = &table->products[dtype];
    const int64_t row_bytes = apr_row_bytes(dtype, COLUMNS);
    double best = 1e9;

    if (product->widen == NULL) return 0.0;
    for (int t = 0; t < N_WIDE; t++)
        table->wide_round(x, COLUMNS, product->order, t % APR_PRODUCT_GEMM_TOKENS, inputs[t / APR_PRODUCT_GEMM_TOKENS]);
    for (int run = 0; run < 5 * RUNS; run++) {
        const double start = now_s();
        for (int b = 0; b < BLOCKS; b++) {
            const uint8_t *each[APR_PRODUCT_GEMM_ROWS];
            for (int r = 0; r < APR_PRODUCT_GEMM_ROWS; r++) each[r] = rows + (b * APR_PRODUCT_GEMM_ROWS + r) * row_bytes;
            const bool has_minimums = product->widen(each, COLUMNS, wide);
            for (int t = 0; t < N_WIDE; t += APR_PRODUCT_GEMM_TOKENS)
                table->wide(wide, has_minimums, inputs[t / APR_PRODUCT_GEMM_TOKENS], COLUMNS, APR_PRODUCT_GEMM_TOKENS,
                            APR_PRODUCT_GEMM_ROWS, out + t * APR_PRODUCT_GEMM_ROWS, APR_PRODUCT_GEMM_ROWS);
        }
        const double seconds = now_s() - start;
        best = seconds < best ? seconds : best;
    }
    return 1e-9 * BLOCKS * APR_PRODUCT_GEMM_ROWS * COLUMNS * (double)N_WIDE / best;
}

static double rate(const apr_products_table *table, apr_dtype dtype, const uint8_t *rows, size_t n_bytes, const float *x, int n_tokens)
{
    const int64_t row_bytes = apr_row_bytes(dtype, COLUMNS), n_rows = (int64_t)n_bytes / row_bytes;
    const int repeat = (int)(LARGE / n_bytes);
    double best = 1e9;
    float total = 0.0f;

    for (int run = 0; run < RUNS; run++) {
        double seconds = 0.0;
        for (int i = 0; i < repeat; i++) seconds += once(table, &table->products[dtype], rows, n_rows, row_bytes, x, n_tokens, &total);
        best = seconds < best ? seconds : best;
    }
    if (total == 1.0f) printf(" "); /* so that nothing is left out */
    return 1e-9 * (double)(n_rows * row_bytes * repeat) / best;
}

/* Noise, encoded once and repeated: all rows are the same. */
static void fill(apr_dtype dtype, const float *x, uint8_t *rows)
{
    const int64_t row_bytes = apr_row_bytes(dtype, COLUMNS);
    if (apr_can_encode(dtype)) apr_host_codecs()[dtype].encode(x, rows, COLUMNS);
    else
        for (int64_t i = 0; i < row_bytes; i++) rows[i] = (uint8_t)(0x20 + i * 7 % 0x10);
    for (int64_t at = row_bytes; at + row_bytes <= LARGE; at += row_bytes) memcpy(rows + at, rows, (size_t)row_bytes);
}

static void bench(apr_dtype dtype, const float *x, uint8_t *rows)
{
    fill(dtype, x, rows);
    printf("  %-8s", apr_dtypes[dtype].name);
    for (int level = 0; level < APR_PRODUCTS_LEVELS; level++) {
        const apr_products_table *const table = apr_products_level_table((apr_products_level)level);
        if (table == NULL) continue;
        printf("  %6.2f %6.2f %6.2f %6.2f |", rate(table, dtype, rows, SMALL, x, 1), rate(table, dtype, rows, LARGE, x, 1),
               rate(table, dtype, rows, SMALL, x, APR_PRODUCT_TOKENS), wide_rate(table, dtype, rows, x));
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    float *const x = malloc(APR_PRODUCT_TOKENS * COLUMNS * sizeof *x);
    uint8_t *const rows = malloc(LARGE);
    uint64_t state = 1;

    if (x == NULL || rows == NULL) return APR_E_MEMORY;
    for (int i = 0; i < APR_PRODUCT_TOKENS * COLUMNS; i++) x[i] = (float)((double)(apr_random(&state) >> 11) * 0x1p-52 - 1.0);
    printf("  GB/s of weights, one core: rows in the cache, in memory, in the cache with four tokens; 10^9 products/s of 64 tokens |");
    for (int level = 0; level < APR_PRODUCTS_LEVELS; level++)
        if (apr_products_level_table((apr_products_level)level) != NULL)
            printf(" %s |", apr_products_level_table((apr_products_level)level)->name);
    printf("\n");
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_product *const product = &apr_products()->products[d];
        bool is_asked = argc < 2 && (product->rounded != NULL || product->plain != NULL);
        for (int i = 1; i < argc; i++) is_asked = is_asked || strcasecmp(argv[i], apr_dtypes[d].name) == 0;
        if (is_asked) bench((apr_dtype)d, x, rows);
    }
    free(rows);
    free(x);
    return 0;
}
