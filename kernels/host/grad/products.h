/* products.h - C += A B for matrices with any strides: all three products of a linear layer and of attention.
 *
 * C is divided into blocks, and a thread takes one at a time. A block copies what it reads of A and B into tiles, one part of the depth
 * at a time. Each number of C is a sum over one part of the depth, added to those of the parts before: the same bits for any number of threads. */
#ifndef APR_KERNELS_HOST_GRAD_PRODUCTS_H
#define APR_KERNELS_HOST_GRAD_PRODUCTS_H

#include "kernels/host/grad/numbers.h"
#include "kernels/host/lanes.h"

enum { TILE_ROWS = 6, BLOCK_ROWS = APR_GRAD_TILE_ROWS, BLOCK_COLUMNS = APR_GRAD_TILE_COLUMNS, BLOCK_DEPTH = APR_GRAD_TILE_DEPTH };
_Static_assert(BLOCK_ROWS % TILE_ROWS == 0 && BLOCK_COLUMNS % 32 == 0, "blocks are whole tiles at every vector width");

#define LANES_BYTES 64
#include "kernels/host/grad/tile.h"
#define LANES_BYTES 32
#include "kernels/host/grad/tile.h"
#define LANES_BYTES 16
#include "kernels/host/grad/tile.h"

/* A matrix: number (i, j) is at[i * row + j * column]. */
typedef struct matrix {
    const num *at;
    int64_t row, column;
} matrix;

static inline matrix rows_of(const num *at, int64_t row) { return (matrix){at, row, 1}; }
static inline matrix transposed(const num *at, int64_t row) { return (matrix){at, 1, row}; }

/* c[m, n] += a[m, k] * b[k, n]; rows of c are c_row numbers apart. */
typedef struct product {
    matrix a, b;
    num *c;
    int64_t c_row, m, n, k;
} product;

/* Copies n_rows x n of a matrix, tile after tile of `width` rows: [tile][k][row of the tile]. Rows after the last one are zeros. */
static inline void pack(const matrix *x, int64_t first, int64_t n_rows, int64_t begin, int64_t n, int64_t width, num *to)
{
    for (int64_t r = 0; r < n_rows; r += width) {
        const int64_t there = n_rows - r < width ? n_rows - r : width;
        for (int64_t k = 0; k < n; k++, to += width) {
            const num *const at = x->at + (first + r) * x->row + (begin + k) * x->column;
            for (int64_t i = 0; i < there; i++) to[i] = at[i * x->row];
            for (int64_t i = there; i < width; i++) to[i] = 0;
        }
    }
}

LANES_INLINE void multiply_tile(const lanes_shape shape, const num *a, const num *b, int64_t n, num *sums)
{
    if (shape.bytes == 64) multiply_tile_64(a, b, n, sums);
    else if (shape.bytes == 32) multiply_tile_32(a, b, n, sums);
    else multiply_tile_16(a, b, n, sums);
}

/* Adds one part of the depth to the block of C that begins at row i, column j. */
LANES_INLINE void multiply_part(const lanes_shape shape, const product *p, int64_t i, int64_t j, int64_t k, num *tiles)
{
    const int64_t m = p->m - i < BLOCK_ROWS ? p->m - i : BLOCK_ROWS, n = p->n - j < BLOCK_COLUMNS ? p->n - j : BLOCK_COLUMNS;
    const int64_t depth = p->k - k < BLOCK_DEPTH ? p->k - k : BLOCK_DEPTH, width = 2 * (shape.bytes / (int64_t)sizeof(num));
    num *const a = tiles, *const b = a + BLOCK_ROWS * BLOCK_DEPTH, *const sums = b + BLOCK_COLUMNS * BLOCK_DEPTH;
    const matrix columns = {p->b.at, p->b.column, p->b.row};

    pack(&p->a, i, m, k, depth, TILE_ROWS, a);
    pack(&columns, j, n, k, depth, width, b);
    for (int64_t c = 0; c < n; c += width)
        for (int64_t r = 0; r < m; r += TILE_ROWS) {
            multiply_tile(shape, a + r * depth, b + c * depth, depth, sums);
            for (int64_t y = 0; y < TILE_ROWS && r + y < m; y++)
                for (int64_t x = 0; x < width && c + x < n; x++) p->c[(i + r + y) * p->c_row + j + c + x] += sums[y * width + x];
        }
}

LANES_INLINE void multiply_block_body(const lanes_shape shape, const product *p, int64_t i, int64_t j, num *tiles)
{
    for (int64_t k = 0; k < p->k; k += BLOCK_DEPTH) multiply_part(shape, p, i, j, k, tiles);
}

LANES_CLONES(multiply_block, multiply_block_body, (const product *p, int64_t i, int64_t j, num *tiles), p, i, j, tiles)

/* By the calling thread alone. */
static void multiply_here(const product *p, num *tiles)
{
    for (int64_t i = 0; i < p->m; i += BLOCK_ROWS)
        for (int64_t j = 0; j < p->n; j += BLOCK_COLUMNS) multiply_block(p, i, j, tiles);
}

static num *tiles_of_thread(const apr_grad_call *c) { return (num *)c->tiles + (size_t)apr_thread_number() * apr_grad_tiles(); }

static void multiply(const apr_grad_call *c, const product *p)
{
    const int64_t down = (p->m + BLOCK_ROWS - 1) / BLOCK_ROWS, n_blocks = down * ((p->n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS);

#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(c, n_blocks, (double)p->m *(double)p->n *(double)p->k))
    for (int64_t b = 0; b < n_blocks; b++) multiply_block(p, b % down * BLOCK_ROWS, b / down * BLOCK_COLUMNS, tiles_of_thread(c));
}

/* sums[j] += sum over rows of x[row][j] */
static void add_rows(const num *x, int64_t n_rows, int64_t stride, int64_t n, num *sums)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t j = 0; j < n; j++) sums[j] += x[r * stride + j];
}

/* Sets n_rows rows to the bias, or to zeros. */
static void set_rows(num *out, int64_t n_rows, int64_t n, const num *bias)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t j = 0; j < n; j++) out[r * n + j] = bias != NULL ? bias[j] : 0;
}

#endif
