/* matmul_floats.c - linear layers on the host whose rows are multiplied as float32: as they are stored, or a few of them decoded by the
 * thread that multiplies them with all tokens.
 *
 * Long rows are multiplied in panels of columns: eight rows of one stay in the first-level cache while all tokens pass, and their sums,
 * sixteen for a row and a token, are kept until the next panel goes on with them. So sums are added in the same order either way. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"

#include <string.h>

enum { PANEL_ROWS = 8, PANEL_COLUMNS = 512, PANEL_TOKENS = 128, FEWEST_TOKENS = 12 };

/* Rows of a layer, `first` and on, as float32. */
typedef struct float_rows {
    const float *numbers;
    int64_t stride, first, n;
} float_rows;

LANES_INLINE void put_out(const apr_linear_args *a, int64_t token, int64_t row, float sum)
{
    a->out[token * a->n_out + row] = a->bias != NULL ? sum + a->bias[row] : sum;
}

/* ---- whole rows ---- */

/* A tile of tokens, `token` and on, against all rows. */
LANES_INLINE void multiply_tokens(const lanes_shape shape, const int row_tile, const int n_tokens, const apr_linear_args *a,
                                  const float_rows *rows, int64_t token)
{
    const float *const x = a->x + token * a->n_in;
    float sums[4][6];
    for (int64_t r = 0, n; r < rows->n; r += n) {
        const float *const numbers = rows->numbers + r * rows->stride;
        n = r + row_tile <= rows->n ? row_tile : 1;
        if (n == row_tile) lanes_dots(shape, row_tile, n_tokens, numbers, rows->stride, x, a->n_in, a->n_in, sums);
        else lanes_dots(shape, 1, n_tokens, numbers, rows->stride, x, a->n_in, a->n_in, sums);
        for (int t = 0; t < n_tokens; t++)
            for (int64_t i = 0; i < n; i++) put_out(a, token + t, rows->first + r + i, sums[i][t]);
    }
}

/* Tokens outside, rows inside: the rows stay in the cache. */
LANES_INLINE void multiply_body(const lanes_shape shape, const apr_linear_args *a, const float_rows *rows)
{
    int64_t t = 0;
    for (; t + shape.tokens <= a->n_tokens; t += shape.tokens) multiply_tokens(shape, shape.rows, shape.tokens, a, rows, t);
    for (; t + 2 <= a->n_tokens; t += 2) multiply_tokens(shape, shape.rows, 2, a, rows, t);
    for (; t < a->n_tokens; t++) multiply_tokens(shape, 4, 1, a, rows, t);
}

LANES_CLONES(multiply, multiply_body, (const apr_linear_args *a, const float_rows *rows), a, rows)

/* ---- panels ---- */

/* Some tokens, `first` and on, and the sums of their products so far: [n, PANEL_ROWS, N_LANES]. */
typedef struct panel_tokens {
    int64_t first, n;
    float *kept;
} panel_tokens;

/* A tile of tokens against a panel's columns [column, column + n_columns) of all rows. */
LANES_INLINE void keep_tokens(const lanes_shape shape, const int n_tokens, const apr_linear_args *a, const float_rows *rows,
                              const panel_tokens *p, int64_t token, int64_t column, int64_t n_columns)
{
    const float *const x = a->x + (p->first + token) * a->n_in + column;
    for (int64_t r = 0, n; r < rows->n; r += n) {
        const float *const numbers = rows->numbers + r * rows->stride + column;
        float *const kept = p->kept + (token * PANEL_ROWS + r) * N_LANES;
        n = r + 4 <= rows->n ? 4 : 1;
        if (n == 4) lanes_keep(shape, 4, n_tokens, numbers, rows->stride, x, a->n_in, n_columns, kept, PANEL_ROWS * N_LANES);
        else lanes_keep(shape, 1, n_tokens, numbers, rows->stride, x, a->n_in, n_columns, kept, PANEL_ROWS * N_LANES);
    }
}

/* What is left of a row behind the last sixteen numbers is added behind the sum of the lanes, as lanes_dots has it. */
LANES_INLINE float tail_of(const apr_linear_args *a, const float_rows *rows, int64_t token, int64_t r, int64_t done)
{
    float tail = 0.0f;
    for (int64_t i = done; i < a->n_in; i++) tail += rows->numbers[r * rows->stride + i] * a->x[token * a->n_in + i];
    return tail;
}

LANES_INLINE void put_sums(const apr_linear_args *a, const float_rows *rows, const panel_tokens *p, int64_t done)
{
    for (int64_t t = 0; t < p->n; t++)
        for (int64_t r = 0; r < rows->n; r += 4) {
            float sums[4];
            lanes_sum_4(p->kept + (t * PANEL_ROWS + r) * N_LANES, sums);
            for (int64_t i = 0; i < 4 && r + i < rows->n; i++)
                put_out(a, p->first + t, rows->first + r + i, sums[i] + tail_of(a, rows, p->first + t, r + i, done));
        }
}

/* How many of the tokens that are left are a tile. One alone has too few sums to fill the time until one of them is there: where it would
 * be left, two tiles of two come last. */
LANES_INLINE int tile_of(int64_t left, int most) { return left == most || left >= most + 2 ? most : left >= 2 ? 2 : 1; }

LANES_INLINE void multiply_panels_body(const lanes_shape shape, const apr_linear_args *a, const float_rows *rows, const panel_tokens *p)
{
    const int64_t whole = a->n_in / N_LANES * N_LANES;

    for (int64_t column = 0; column < whole; column += PANEL_COLUMNS) {
        const int64_t n_columns = whole - column < PANEL_COLUMNS ? whole - column : PANEL_COLUMNS;
        for (int64_t t = 0, n; t < p->n; t += n) {
            n = tile_of(p->n - t, shape.tokens);
            if (n == shape.tokens) keep_tokens(shape, shape.tokens, a, rows, p, t, column, n_columns);
            else if (n == 2) keep_tokens(shape, 2, a, rows, p, t, column, n_columns);
            else keep_tokens(shape, 1, a, rows, p, t, column, n_columns);
        }
    }
    put_sums(a, rows, p, whole);
}

LANES_CLONES(multiply_panels, multiply_panels_body, (const apr_linear_args *a, const float_rows *rows, const panel_tokens *p), a, rows, p)

/* ---- rows ---- */

/* Stored as float32, in order and aligned: there is nothing to decode. */
static const float *plain_rows(const apr_tensor *weight)
{
    const bool is_plain = weight->dtype == APR_F32 && weight->pending.kind == APR_STEP_NONE && weight->packing == NULL &&
                          (uintptr_t)weight->data % sizeof(float) == 0;
    return is_plain ? (const float *)(const void *)weight->data : NULL;
}

/* The second half of a thread's slice (apr_linear_slice) has room for the sums of some tokens: of 64 at least. */
static void multiply_in_panels(const apr_linear_args *a, const float_rows *rows, float *kept)
{
    const int64_t room = APR_LINEAR_ROWS * a->n_in / (PANEL_ROWS * N_LANES), most = room < PANEL_TOKENS ? room : PANEL_TOKENS;

    for (int64_t first = 0; first < a->n_tokens; first += most) {
        const panel_tokens some = {.first = first, .n = a->n_tokens - first < most ? a->n_tokens - first : most, .kept = kept};
        memset(kept, 0, (size_t)(some.n * PANEL_ROWS * N_LANES) * sizeof *kept);
        multiply_panels(a, rows, &some);
    }
}

/* Numbers that lie 4 KiB apart share a set of the first-level cache, of which it has eight or so: every other row of a panel may have them,
 * where the stride of all is an odd multiple of 2 KiB. Eight such rows are no longer than sixteen of n_in >= 1024. */
static int64_t stride_of(int64_t n_in)
{
    const int64_t way = 4096 / sizeof(float);
    return n_in < way ? n_in : (n_in + way / 2 - 1) / way * way + way / 2;
}

/* Sixteen rows from end to end, or four for few tokens: a block that stays in the first-level cache. */
static void multiply_whole_rows(const apr_linear_args *a, const float *plain)
{
    const int64_t block = a->n_tokens < 4 ? 4 : APR_LINEAR_ROWS, n_blocks = (a->n_out + block - 1) / block;

#pragma omp parallel for schedule(dynamic, 4) num_threads(apr_threads(a->work.n_threads, n_blocks, apr_host_linear_steps(a)))
    for (int64_t b = 0; b < n_blocks; b++) {
        float *const decoded = a->work.data + apr_host_slice(&a->work);
        float_rows rows = {.stride = a->n_in, .first = b * block};
        rows.n = a->n_out - rows.first < block ? a->n_out - rows.first : block;
        rows.numbers = plain != NULL ? plain + rows.first * a->n_in : decoded;
        if (plain == NULL) apr_decode_rows(a->weight, rows.first, rows.n, decoded);
        multiply(a, &rows);
    }
}

static void multiply_long_rows(const apr_linear_args *a, const float *plain)
{
    const int64_t n_blocks = (a->n_out + PANEL_ROWS - 1) / PANEL_ROWS, stride = plain != NULL ? a->n_in : stride_of(a->n_in);

#pragma omp parallel for schedule(dynamic, 4) num_threads(apr_threads(a->work.n_threads, n_blocks, apr_host_linear_steps(a)))
    for (int64_t b = 0; b < n_blocks; b++) {
        float *const decoded = a->work.data + apr_host_slice(&a->work);
        float_rows rows = {.stride = stride, .first = b * PANEL_ROWS};
        rows.n = a->n_out - rows.first < PANEL_ROWS ? a->n_out - rows.first : PANEL_ROWS;
        rows.numbers = plain != NULL ? plain + rows.first * a->n_in : decoded;
        for (int64_t r = 0; plain == NULL && r < rows.n; r++) apr_decode_rows(a->weight, rows.first + r, 1, decoded + r * stride);
        multiply_in_panels(a, &rows, decoded + APR_LINEAR_ROWS * a->n_in);
    }
}

void apr_host_linear_floats(const apr_linear_args *a)
{
    if (a->n_in > PANEL_COLUMNS && a->n_tokens >= FEWEST_TOKENS) multiply_long_rows(a, plain_rows(a->weight));
    else multiply_whole_rows(a, plain_rows(a->weight));
}
