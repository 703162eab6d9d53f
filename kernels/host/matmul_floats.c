/* matmul_floats.c - linear layers on the host in float32: rows are multiplied as stored, or each thread decodes a few rows and
 * multiplies them with all tokens.
 *
 * Long rows with more than a few tokens are multiplied in panels of columns. A block of rows passes over all panels. For each panel the
 * inputs are transposed into the L2 cache, and rows are decoded into the L1 cache, a few at a time. So each number of a row is
 * multiplied with as many tokens as a vector holds, and each sum is one chain a panel: no sums across lanes, no dependence on tiles.
 *
 * Predicted for F16 on two cores of Zen 3, where sums by lanes reached 61 of 102 x 10^9 products/s: the register tile has 12
 * multiply-adds for 8 loads and stops every 1,536 cycles instead of every 192, decoding takes 6 %, transposing inputs 4 %, which leaves
 * 85; for a prompt of 64 tokens 120 tokens/s instead of 90. Measured: 104, and 121 with the next rows prefetched while others are
 * decoded. Prefetching between products instead is the same for 64 tokens, but gives 36 tokens/s instead of 42 for 5 tokens (45 by
 * lanes). Panels of 512 are 1 % faster, but their sums are longer. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"

#include <string.h>

/* Every shape's tiles divide TILE tokens, and its groups divide GROUP_ROWS. Fewer than FEWEST_TOKENS tokens are summed in another order
 * anyway (apr_host_batch_invariant_tokens), and shorter rows leave no space for a tile. */
enum { LONG_ROW = 513, FEWEST_TOKENS = 5, PANEL_COLUMNS = 256, TILE = 32, GROUP_ROWS = 12 };
enum { FEWEST_ROWS = 48, MOST_ROWS = 288, MOST_TOKENS = 128 }; /* of a block */

/* Rows [first, first + n) of a layer, as float32. */
typedef struct float_rows {
    const float *numbers;
    int64_t stride, first, n;
} float_rows;

LANES_INLINE void put_out(const apr_linear_args *a, int64_t token, int64_t row, float sum)
{
    a->out[token * a->n_out + row] = a->bias != NULL ? sum + a->bias[row] : sum;
}

/* ---- whole rows ---- */

/* Multiplies a tile of tokens, from `token` on, with all rows. */
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

/* Tokens in the outer loop, rows in the inner one: the rows stay in the cache. */
LANES_INLINE void multiply_body(const lanes_shape shape, const apr_linear_args *a, const float_rows *rows)
{
    int64_t t = 0;
    for (; t + shape.tokens <= a->n_tokens; t += shape.tokens) multiply_tokens(shape, shape.rows, shape.tokens, a, rows, t);
    for (; t + 2 <= a->n_tokens; t += 2) multiply_tokens(shape, shape.rows, 2, a, rows, t);
    for (; t < a->n_tokens; t++) multiply_tokens(shape, 4, 1, a, rows, t);
}

LANES_CLONES(multiply, multiply_body, (const apr_linear_args *a, const float_rows *rows), a, rows)

/* ---- panels ---- */

/* Rows as they are stored. */
typedef struct stored_rows {
    const apr_tensor *weight;
    apr_decode_fn decode; /* decodes a row's columns from the start of any panel; NULL: apr_decode_part must be used */
    const uint8_t *first;
    int64_t row_bytes, panel_bytes;
} stored_rows;

/* A block of rows and tokens, and the thread's buffers. Tokens are in tiles of two vectors (the last tile may have one), rows in groups. */
typedef struct panel_block {
    const stored_rows *stored;
    int64_t row, n_rows, token, n_tokens;
    float *transposed;   /* [tiles, PANEL_COLUMNS, tokens of a tile]: the transposed inputs */
    float *decoded;      /* [rows of a group, PANEL_COLUMNS] */
    float *partial_sums; /* [groups, tiles, rows of a group, tokens of a tile]: sums of the panels so far */
} panel_block;

LANES_INLINE int64_t tile_of(const lanes_shape shape) { return 2 * (shape.bytes / (int64_t)sizeof(float)); }

/* The width of a tile when n tokens are left. */
LANES_INLINE int64_t width_of(const lanes_shape shape, int64_t n) { return 2 * n <= tile_of(shape) ? tile_of(shape) / 2 : tile_of(shape); }

LANES_INLINE int64_t tiles_of(const lanes_shape shape, const panel_block *b) { return (b->n_tokens + tile_of(shape) - 1) / tile_of(shape); }

/* Transposes columns [column, column + n) of all inputs. A tile with too few tokens is padded with copies of the last one, whose sums
 * are not used. */
LANES_INLINE void transpose_inputs(const lanes_shape shape, const apr_linear_args *a, const panel_block *b, int64_t column, int64_t n)
{
    for (int64_t t = 0; t < b->n_tokens; t += tile_of(shape)) {
        const int64_t width = width_of(shape, b->n_tokens - t);
        for (int64_t i = 0; i < width; i += 4) {
            const float *x[4];
            for (int64_t j = 0; j < 4; j++) {
                const int64_t token = t + i + j < b->n_tokens ? t + i + j : b->n_tokens - 1;
                x[j] = a->x + (b->token + token) * a->n_in + column;
            }
            lanes_transpose_4(x, n, b->transposed + t * PANEL_COLUMNS + i, width);
        }
    }
}

/* The address of a row of the block from a panel's first column on, to decode or prefetch. */
LANES_INLINE uintptr_t place_of(const panel_block *b, int64_t r, int64_t column)
{
    const stored_rows *const s = b->stored;
    return (uintptr_t)s->first + (uintptr_t)((b->row + r) * s->row_bytes + column / PANEL_COLUMNS * s->panel_bytes);
}

/* Decodes a group of rows from row `first` on; rows after the last one are zeros. The rows of the next group are far apart, so they are
 * prefetched here. */
LANES_INLINE void decode_group(const int n_group, const panel_block *b, int64_t first, int64_t column, int64_t n)
{
    const stored_rows *const s = b->stored;
    const bool is_last = first + n_group >= b->n_rows;
    const int64_t next = is_last ? 0 : first + n_group, next_column = is_last ? column + PANEL_COLUMNS : column;

    for (int64_t r = 0; r < n_group; r++) {
        float *const decoded = b->decoded + r * PANEL_COLUMNS;
        for (int64_t i = 0; i < s->panel_bytes; i += 64)
            __builtin_prefetch((const void *)(place_of(b, next + r, next_column) + (uintptr_t)i));
        if (first + r >= b->n_rows) memset(decoded, 0, (size_t)n * sizeof *decoded);
        else if (s->decode != NULL) s->decode((const void *)place_of(b, first + r, column), decoded, n);
        else apr_decode_part(s->weight, b->row + first + r, column, n, decoded);
    }
}

/* Multiplies the decoded group, from row `first` on, with all tokens. */
LANES_INLINE void multiply_group(const lanes_shape shape, const int n_group, const panel_block *b, int64_t first, int64_t n)
{
    for (int64_t t = 0; t < b->n_tokens; t += tile_of(shape)) {
        const float *const x = b->transposed + t * PANEL_COLUMNS;
        float *const partial_sums = b->partial_sums + first * tiles_of(shape, b) * tile_of(shape) + t * n_group;
        if (width_of(shape, b->n_tokens - t) < tile_of(shape))
            lanes_chains(shape, n_group, 1, b->decoded, PANEL_COLUMNS, x, n, partial_sums);
        else lanes_chains(shape, shape.chains, 2, b->decoded, PANEL_COLUMNS, x, n, partial_sums);
    }
}

LANES_INLINE void put_sums(const lanes_shape shape, const int n_group, const apr_linear_args *a, const panel_block *b)
{
    for (int64_t t = 0; t < b->n_tokens; t++) {
        const int64_t in_tile = t % tile_of(shape), width = width_of(shape, b->n_tokens - t + in_tile);
        const float *const partial_sums = b->partial_sums + (t - in_tile) * n_group + in_tile;
        for (int64_t first = 0; first < b->n_rows; first += n_group)
            for (int64_t r = 0; r < n_group && first + r < b->n_rows; r++)
                put_out(a, b->token + t, b->row + first + r, partial_sums[first * tiles_of(shape, b) * tile_of(shape) + r * width]);
    }
}

LANES_INLINE void multiply_panels(const lanes_shape shape, const int n_group, const apr_linear_args *a, const panel_block *b)
{
    const int64_t n_rows = (b->n_rows + n_group - 1) / n_group * n_group;

    memset(b->partial_sums, 0, (size_t)(n_rows * tiles_of(shape, b) * tile_of(shape)) * sizeof *b->partial_sums);
    for (int64_t column = 0; column < a->n_in; column += PANEL_COLUMNS) {
        const int64_t n = a->n_in - column < PANEL_COLUMNS ? a->n_in - column : PANEL_COLUMNS;
        transpose_inputs(shape, a, b, column, n);
        for (int64_t first = 0; first < n_rows; first += n_group) {
            decode_group(n_group, b, first, column, n);
            multiply_group(shape, n_group, b, first, n);
        }
    }
    put_sums(shape, n_group, a, b);
}

/* With a single vector of tokens, registers are left for more rows. */
LANES_INLINE void multiply_block_body(const lanes_shape shape, const apr_linear_args *a, const panel_block *b)
{
    if (width_of(shape, b->n_tokens) < tile_of(shape)) multiply_panels(shape, GROUP_ROWS, a, b);
    else multiply_panels(shape, shape.chains, a, b);
}

LANES_CLONES(multiply_block, multiply_block_body, (const apr_linear_args *a, const panel_block *b), a, b)

/* ---- rows ---- */

/* Rows that are stored as float32, in order and aligned, need no decoding; else NULL. */
static const float *plain_rows(const apr_tensor *weight)
{
    const bool is_plain =
        weight->dtype == APR_F32 && apr_tensor_source(weight) == APR_SOURCE_IN_ORDER && (uintptr_t)weight->data % sizeof(float) == 0;
    return is_plain ? (const float *)(const void *)weight->data : NULL;
}

/* Multiplies whole rows: sixteen at a time, or four for few tokens, so that they stay in the L1 cache. */
static void multiply_whole_rows(const apr_linear_args *a, const float *plain)
{
    const int64_t block = a->n_tokens < 4 ? 4 : APR_LINEAR_ROWS, n_blocks = (a->n_out + block - 1) / block;

#pragma omp parallel for schedule(dynamic, 4) num_threads(apr_threads(a->work.n_threads, n_blocks, apr_host_linear_cost(a)))
    for (int64_t b = 0; b < n_blocks; b++) {
        float *const decoded = a->work.data + apr_host_slice(&a->work);
        float_rows rows = {.stride = a->n_in, .first = b * block};
        rows.n = a->n_out - rows.first < block ? a->n_out - rows.first : block;
        rows.numbers = plain != NULL ? plain + rows.first * a->n_in : decoded;
        if (plain == NULL) apr_decode_rows(a->weight, rows.first, rows.n, decoded);
        multiply(a, &rows);
    }
}

/* Finds rows that can be decoded from any panel on: stored in order, whole blocks in each panel, no scales to apply afterwards. */
static stored_rows find_rows(const apr_tensor *weight, int64_t n_in)
{
    const apr_dtype_facts *const type = &apr_dtypes[weight->dtype];
    const bool is_whole = PANEL_COLUMNS % type->elems_per_block == 0 && n_in % type->elems_per_block == 0;
    if (!apr_tensor_is_plain(weight) || !is_whole || type->scales == APR_SCALES_FIRST) return (stored_rows){.weight = weight};
    return (stored_rows){.weight = weight,
                         .decode = apr_host_codecs()[weight->dtype].decode,
                         .first = weight->data,
                         .row_bytes = apr_row_bytes(weight->dtype, n_in),
                         .panel_bytes = apr_row_bytes(weight->dtype, PANEL_COLUMNS)};
}

/* Tokens and rows of a block: limited by a thread's slice and caches, and so that each thread gets the same number of blocks. */
typedef struct block_sizes {
    int64_t tokens, rows;
} block_sizes;

static block_sizes size_blocks(const apr_linear_args *a, int64_t n_threads)
{
    const int64_t capacity = (int64_t)a->work.slice - GROUP_ROWS * PANEL_COLUMNS, wanted = (a->n_tokens + TILE - 1) / TILE * TILE;
    const int64_t fitting = capacity / (PANEL_COLUMNS + FEWEST_ROWS) / TILE * TILE, most = fitting < MOST_TOKENS ? fitting : MOST_TOKENS;
    const int64_t tokens = wanted < most ? wanted : most, left = capacity / tokens - PANEL_COLUMNS;
    const int64_t most_rows = left < MOST_ROWS ? left / GROUP_ROWS * GROUP_ROWS : MOST_ROWS;
    const int64_t n_rounds = (a->n_out + most_rows * n_threads - 1) / (most_rows * n_threads), n_blocks = n_rounds * n_threads;
    const int64_t even = ((a->n_out + n_blocks - 1) / n_blocks + GROUP_ROWS - 1) / GROUP_ROWS * GROUP_ROWS;
    return (block_sizes){.tokens = tokens, .rows = even > FEWEST_ROWS ? even : FEWEST_ROWS};
}

static void multiply_long_rows(const apr_linear_args *a)
{
    const int n_threads = apr_threads(a->work.n_threads, (a->n_out + GROUP_ROWS - 1) / GROUP_ROWS, apr_host_linear_cost(a));
    const block_sizes size = size_blocks(a, n_threads);
    const stored_rows stored = find_rows(a->weight, a->n_in);

#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t row = 0; row < a->n_out; row += size.rows) {
        float *const slice = a->work.data + apr_host_slice(&a->work);
        panel_block b = {
            .stored = &stored, .row = row, .n_rows = a->n_out - row < size.rows ? a->n_out - row : size.rows, .transposed = slice};
        b.decoded = b.transposed + size.tokens * PANEL_COLUMNS;
        b.partial_sums = b.decoded + GROUP_ROWS * PANEL_COLUMNS;
        for (; b.token < a->n_tokens; b.token += size.tokens) {
            b.n_tokens = a->n_tokens - b.token < size.tokens ? a->n_tokens - b.token : size.tokens;
            multiply_block(a, &b);
        }
    }
}

/* ---- each head has its own matrix: a thread takes a head, decodes a few of its rows and multiplies them with all tokens ---- */

/* Decoded rows [i, i + n_rows) of a head's matrix. */
typedef struct head_rows {
    const float *rows;
    int64_t head, i, n_rows;
} head_rows;

/* out[t][i + r] = row r . x[t] */
LANES_INLINE void dot_rows(const lanes_shape shape, const apr_linear_args *a, const head_rows *h)
{
    const int64_t x_stride = a->heads.n * a->n_in, out_stride = a->heads.n * a->n_out;
    const float *x = a->x + h->head * a->n_in;
    float *out = a->out + h->head * a->n_out + h->i;
    float sums[4][6];

    for (int64_t t = 0, n; t < a->n_tokens; t += n) {
        n = a->n_tokens - t >= shape.tokens ? shape.tokens : 1;
        for (int64_t r = 0; r < h->n_rows; r++) {
            if (n == shape.tokens)
                lanes_dots(shape, 1, shape.tokens, h->rows + r * a->n_in, a->n_in, x + t * x_stride, x_stride, a->n_in, sums);
            else lanes_dots(shape, 1, 1, h->rows + r * a->n_in, a->n_in, x + t * x_stride, x_stride, a->n_in, sums);
            for (int64_t k = 0; k < n; k++) out[(t + k) * out_stride + r] = sums[0][k];
        }
    }
}

/* out[t] += sum over r: x[t][i + r] * row r */
LANES_INLINE void add_rows(const lanes_shape shape, const apr_linear_args *a, const head_rows *h)
{
    for (int64_t t = 0; t < a->n_tokens; t++) {
        const float *const x = a->x + (t * a->heads.n + h->head) * a->n_in + h->i;
        float *const out = a->out + (t * a->heads.n + h->head) * a->n_out;
        for (int64_t r = 0; r < h->n_rows; r++) lanes_add_scaled(shape, out, x[r], h->rows + r * a->n_out, a->n_out);
    }
}

LANES_INLINE void multiply_head_body(const lanes_shape shape, const apr_linear_args *a, const head_rows *h)
{
    if (a->heads.transposed) add_rows(shape, a, h);
    else dot_rows(shape, a, h);
}

LANES_CLONES(multiply_head, multiply_head_body, (const apr_linear_args *a, const head_rows *h), a, h)

static void run_head(const apr_linear_args *a, int64_t head, float *decoded)
{
    const int64_t n_rows = apr_linear_head_rows(a);

    for (int64_t t = 0; t < a->n_tokens && a->heads.transposed; t++)
        memset(a->out + (t * a->heads.n + head) * a->n_out, 0, (size_t)a->n_out * sizeof *a->out);
    for (int64_t i = 0; i < n_rows; i += APR_LINEAR_ROWS) {
        const head_rows h = {.rows = decoded, .head = head, .i = i, .n_rows = n_rows - i < APR_LINEAR_ROWS ? n_rows - i : APR_LINEAR_ROWS};
        apr_decode_rows(a->weight, apr_linear_first_row(a, head) + i, h.n_rows, decoded);
        multiply_head(a, &h);
    }
}

static void multiply_heads(const apr_linear_args *a)
{
#pragma omp parallel for schedule(dynamic, 1) num_threads(apr_threads(a->work.n_threads, a->heads.n, apr_host_linear_cost(a)))
    for (int64_t head = 0; head < a->heads.n; head++) run_head(a, head, a->work.data + apr_host_slice(&a->work));
}

void apr_host_linear_floats(const apr_linear_args *a)
{
    if (a->heads.n > 0) multiply_heads(a);
    else if (a->n_in >= LONG_ROW && a->n_tokens >= FEWEST_TOKENS) multiply_long_rows(a);
    else multiply_whole_rows(a, plain_rows(a->weight));
}
