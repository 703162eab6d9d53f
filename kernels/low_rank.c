/* low_rank.c - b times a, in tiles that fit the L1 cache: a row of a is decoded once for all rows of a tile. */
#include "kernels/low_rank.h"

#include "kernels/rows.h"

#include <math.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_COLUMNS = 256, TERMS = 4 /* summed at a time */, MOST_ELEMS = 256 /* of a block */ };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Elements [first, first + n) of the base tensor. Composed tensors are read in whole blocks. */
static void read_base(const apr_tensor *t, int64_t first, int64_t n, float *dst)
{
    const int64_t elems = apr_dtypes[t->dtype].elems_per_block;
    float block[MOST_ELEMS];

    if (t->made == NULL || elems == 1) {
        apr_decode_elements(t, first, n, dst);
        return;
    }
    for (int64_t take; n > 0; first += take, n -= take, dst += take) {
        const int64_t skip = first % elems;
        take = skip == 0 && n >= elems ? n - n % elems : least(n, elems - skip);
        if (take >= elems) {
            apr_decode_elements(t, first, take, dst);
            continue;
        }
        apr_decode_elements(t, first - skip, elems, block);
        memcpy(dst, block + skip, (size_t)take * sizeof *dst);
    }
}

/* Adds terms k to k + n_terms - 1 to the sums, one after another. */
static void add_terms(const apr_merge *m, int64_t k, int64_t n_terms, int64_t row, int64_t n_rows, int64_t from, int64_t n,
                      float sums[TILE_ROWS][TILE_COLUMNS])
{
    const int64_t rank = m->a->dims[0], columns = m->a->dims[1];
    float a[TERMS][TILE_COLUMNS], b[TERMS];

    for (int64_t t = 0; t < n_terms; t++) apr_decode_elements(m->a, (k + t) * columns + from, n, a[t]);
    for (int64_t i = 0; i < n_rows; i++) {
        float *const sum = sums[i];
        apr_decode_elements(m->b, (row + i) * rank + k, n_terms, b);
        if (n_terms == TERMS)
            for (int64_t c = 0; c < n; c++) sum[c] = sum[c] + b[0] * a[0][c] + b[1] * a[1][c] + b[2] * a[2][c] + b[3] * a[3][c];
        else
            for (int64_t t = 0; t < n_terms; t++)
                for (int64_t c = 0; c < n; c++) sum[c] += b[t] * a[t][c];
    }
}

/* Columns [from, from + n) of n_rows rows, `stride` apart. */
static void add_tile(const apr_merge *m, int64_t row, int64_t n_rows, int64_t from, int64_t n, float *dst, int64_t stride)
{
    const int64_t rank = m->a->dims[0];
    float sums[TILE_ROWS][TILE_COLUMNS];

    for (int64_t i = 0; i < n_rows; i++) memset(sums[i], 0, (size_t)n * sizeof *sums[i]);
    for (int64_t k = 0; k < rank; k += TERMS) add_terms(m, k, least(TERMS, rank - k), row, n_rows, from, n, sums);
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t c = 0; c < n; c++) dst[i * stride + c] += m->scale * sums[i][c];
}

static void add_columns(const apr_merge *m, int64_t row, int64_t n_rows, int64_t from, int64_t n, float *dst)
{
    for (int64_t r = 0; r < n_rows; r += TILE_ROWS)
        for (int64_t c = 0; c < n; c += TILE_COLUMNS)
            add_tile(m, row + r, least(TILE_ROWS, n_rows - r), from + c, least(TILE_COLUMNS, n - c), dst + r * n + c, n);
}

/* The factor of a row: its magnitude over its length, which needs the whole row. */
static float row_factor(const apr_composed *made, int64_t row)
{
    const apr_merge *const m = made->merge;
    const int64_t columns = m->a->dims[1];
    float piece[TILE_COLUMNS], magnitude;
    double squares = 0.0;

    for (int64_t c = 0; c < columns; c += TILE_COLUMNS) {
        const int64_t n = least(TILE_COLUMNS, columns - c);
        read_base(made->parts[0], row * columns + c, n, piece);
        add_tile(m, row, 1, c, n, piece, n);
        for (int64_t i = 0; i < n; i++) squares += (double)piece[i] * (double)piece[i];
    }
    apr_decode_elements(m->magnitudes, row, 1, &magnitude);
    return magnitude / (float)sqrt(squares);
}

void apr_low_rank_values(const apr_tensor *merged, int64_t first, int64_t n, float *dst)
{
    const apr_composed *const made = merged->made;
    const apr_merge *const m = made->merge;
    const int64_t columns = apr_tensor_columns(merged);

    read_base(made->parts[0], first, n, dst);
    if (m->a == NULL) return;
    for (int64_t done; n > 0; first += done, n -= done, dst += done) { /* the rest of a row, or whole rows */
        const int64_t row = first / columns, at = first % columns;
        const int64_t n_rows = at == 0 && n >= columns ? n / columns : 1, width = n_rows > 1 ? columns : least(n, columns - at);
        done = n_rows * width;
        add_columns(m, row, n_rows, at, width, dst);
        for (int64_t i = 0; i < n_rows && m->magnitudes != NULL; i++) {
            const float factor = row_factor(made, row + i);
            for (int64_t c = 0; c < width; c++) dst[i * width + c] *= factor;
        }
    }
}
