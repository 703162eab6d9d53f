/* matmul.c - linear layers on the host: packed rows multiplied as they are stored, or decoded to 16 bits for many tokens; else a few rows
 * decoded to float32 by a thread and multiplied with all tokens. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"
#include "kernels/host/products/products.h"

/* out[t][r] for one tile of rows and tokens. */
LANES_INLINE void multiply_tile(const lanes_shape shape, const int n_rows, const int n_tokens, const float *rows, const apr_linear_args *a,
                                int64_t first_row, int64_t token)
{
    float sums[4][6];
    lanes_dots(shape, n_rows, n_tokens, rows, a->n_in, a->x + token * a->n_in, a->n_in, a->n_in, sums);
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < n_rows; r++)
            a->out[(token + t) * a->n_out + first_row + r] = a->bias != NULL ? sums[r][t] + a->bias[first_row + r] : sums[r][t];
}

/* A tile of tokens against n_rows decoded rows. */
LANES_INLINE void multiply_tokens(const lanes_shape shape, const int row_tile, const int n_tokens, const apr_linear_args *a,
                                  const float *rows, int64_t first_row, int64_t n_rows, int64_t token)
{
    int64_t r = 0;
    for (; r + row_tile <= n_rows; r += row_tile) multiply_tile(shape, row_tile, n_tokens, rows + r * a->n_in, a, first_row + r, token);
    for (; r < n_rows; r++) multiply_tile(shape, 1, n_tokens, rows + r * a->n_in, a, first_row + r, token);
}

/* All tokens. Tokens outside, rows inside: the rows stay in the cache. */
LANES_INLINE void multiply_body(const lanes_shape shape, const apr_linear_args *a, const float *rows, int64_t first_row, int64_t n_rows)
{
    int64_t t = 0;
    for (; t + shape.tokens <= a->n_tokens; t += shape.tokens)
        multiply_tokens(shape, shape.rows, shape.tokens, a, rows, first_row, n_rows, t);
    for (; t + 2 <= a->n_tokens; t += 2) multiply_tokens(shape, shape.rows, 2, a, rows, first_row, n_rows, t);
    for (; t < a->n_tokens; t++) multiply_tokens(shape, 4, 1, a, rows, first_row, n_rows, t);
}

LANES_CLONES(multiply, multiply_body, (const apr_linear_args *a, const float *rows, int64_t first_row, int64_t n_rows), a, rows, first_row,
             n_rows)

/* Stored as float32, in order and aligned: there is nothing to decode. */
static const float *plain_rows(const apr_tensor *weight)
{
    const bool is_plain = weight->dtype == APR_F32 && weight->pending.kind == APR_STEP_NONE && weight->packing == NULL &&
                          (uintptr_t)weight->data % sizeof(float) == 0;
    return is_plain ? (const float *)(const void *)weight->data : NULL;
}

/* How many tokens are few: as long as decoding rows costs more than what tiles of float32 save afterwards. */
enum { FEW_ROUNDED = 16, FEW_PLAIN = APR_PRODUCT_TOKENS };

/* Where rows are: found once for those that lie in their order, as a row takes no longer than a division would. */
typedef struct row_finder {
    const apr_tensor *weight;
    const uint8_t *first;
    int64_t step; /* 0: each is looked for */
} row_finder;

static row_finder find_rows(const apr_linear_args *a)
{
    const bool in_order = a->weight->pending.kind == APR_STEP_NONE && a->n_out > 1;
    const uint8_t *const first = apr_tensor_row(a->weight, 0);
    return (row_finder){a->weight, first, in_order ? apr_tensor_row(a->weight, 1) - first : 0};
}

static inline const uint8_t *row_of(const row_finder *rows, int64_t row)
{
    return rows->step > 0 ? rows->first + row * rows->step : apr_tensor_row(rows->weight, row);
}

/* One row as it is stored with n_tokens tokens, `first` and on, whose rounded inputs are at `tiles`. */
static void multiply_stored_row(const apr_linear_args *a, const apr_product *product, const apr_product_tile *tiles, int64_t first,
                                int64_t n_tokens, const row_finder *rows, int64_t row)
{
    const int64_t n_tiles = apr_product_tiles(a->n_in);
    const uint8_t *const bytes = row_of(rows, row);
    const float bias = a->bias != NULL ? a->bias[row] : 0.0f;
    float sums[APR_PRODUCT_TOKENS];

    for (int64_t t = 0; t < n_tokens; t += APR_PRODUCT_TOKENS) {
        const int n = n_tokens - t < APR_PRODUCT_TOKENS ? (int)(n_tokens - t) : APR_PRODUCT_TOKENS;
        if (product->rounded != NULL) product->rounded(bytes, a->n_in, tiles + t * n_tiles, n_tiles, n, sums);
        else product->plain(bytes, a->n_in, a->x + (first + t) * a->n_in, a->n_in, n, sums);
        for (int i = 0; i < n; i++) a->out[(first + t + i) * a->n_out + row] = sums[i] + bias;
    }
}

/* Few tokens: each row is read once and never written decoded. As many at a time as a thread's slice of the workspace has room for: one
 * always fits. */
static void multiply_few(const apr_linear_args *a, const apr_product *product)
{
    apr_product_tile *const tiles = (apr_product_tile *)(void *)a->work.data;
    const int64_t n_tiles = apr_product_tiles(a->n_in), room = (int64_t)(a->work.slice * sizeof(float) / sizeof *tiles) / n_tiles;
    const int64_t most = product->rounded != NULL ? room : a->n_tokens;
    const row_finder rows = find_rows(a);

    for (int64_t first = 0; first < a->n_tokens; first += most) {
        const int64_t n = a->n_tokens - first < most ? a->n_tokens - first : most;
        for (int64_t t = 0; t < n && product->rounded != NULL; t++)
            apr_products()->round(a->x + (first + t) * a->n_in, a->n_in, product->order, tiles + t * n_tiles);
#pragma omp parallel for schedule(dynamic, 64) num_threads(apr_threads(a->work.n_threads, a->n_out, apr_host_linear_steps(a)))
        for (int64_t r = 0; r < a->n_out; r++) multiply_stored_row(a, product, tiles, first, n, &rows, r);
    }
}

/* ---- many tokens: rows are decoded to 16 bits, sixteen at a time ---- */

/* The workspace of all threads: inputs of `most` tokens, and behind them sixteen rows for each thread. */
typedef struct wide_room {
    apr_product_wide_inputs *inputs;
    apr_product_wide_rows *rows;
    int64_t n_groups, most;
} wide_room;

static wide_room divide_workspace(const apr_linear_args *a)
{
    wide_room room = {.inputs = (apr_product_wide_inputs *)(void *)a->work.data, .n_groups = apr_product_wide_groups(a->n_in)};
    const int64_t n_bytes = (int64_t)(a->work.slice * sizeof(float)) * a->work.n_threads;
    const int64_t for_rows = room.n_groups * (int64_t)sizeof *room.rows * a->work.n_threads;
    const int64_t tile_bytes = room.n_groups * (int64_t)sizeof *room.inputs;
    const int64_t n_tiles = n_bytes > for_rows ? (n_bytes - for_rows) / tile_bytes : 0;

    room.rows = (apr_product_wide_rows *)(void *)(room.inputs + n_tiles * room.n_groups);
    room.most = n_tiles * APR_PRODUCT_WIDE_TOKENS;
    return room;
}

static void round_token(const apr_linear_args *a, const apr_product *product, const wide_room *room, int64_t first, int64_t t)
{
    apr_product_wide_inputs *const inputs = room->inputs + t / APR_PRODUCT_WIDE_TOKENS * room->n_groups;
    apr_products()->wide_round(a->x + (first + t) * a->n_in, a->n_in, product->order, (int)(t % APR_PRODUCT_WIDE_TOKENS), inputs);
}

/* Sixteen rows, `row` and on, with n_tokens tokens, `first` and on. */
static void multiply_wide_rows(const apr_linear_args *a, const apr_product *product, const wide_room *room, int64_t first, int64_t n_tokens,
                               int64_t row)
{
    apr_product_wide_rows *const wide = room->rows + omp_get_thread_num() * room->n_groups;
    const int n_rows = a->n_out - row < APR_PRODUCT_WIDE_ROWS ? (int)(a->n_out - row) : APR_PRODUCT_WIDE_ROWS;
    const uint8_t *rows[APR_PRODUCT_WIDE_ROWS];

    for (int r = 0; r < APR_PRODUCT_WIDE_ROWS; r++) rows[r] = apr_tensor_row(a->weight, row + (r < n_rows ? r : n_rows - 1));
    const bool has_minimums = product->widen(rows, a->n_in, wide);
    for (int64_t t = 0; t < n_tokens; t += APR_PRODUCT_WIDE_TOKENS) {
        const int n = n_tokens - t < APR_PRODUCT_WIDE_TOKENS ? (int)(n_tokens - t) : APR_PRODUCT_WIDE_TOKENS;
        float *const out = a->out + (first + t) * a->n_out + row;
        apr_products()->wide(wide, has_minimums, room->inputs + t / APR_PRODUCT_WIDE_TOKENS * room->n_groups, a->n_in, n, n_rows, out,
                             a->n_out);
        if (a->bias == NULL) continue;
        for (int i = 0; i < n; i++)
            for (int r = 0; r < n_rows; r++) out[i * a->n_out + r] += a->bias[row + r];
    }
}

static void multiply_many(const apr_linear_args *a, const apr_product *product, const wide_room *room)
{
    for (int64_t first = 0; first < a->n_tokens; first += room->most) {
        const int64_t n = a->n_tokens - first < room->most ? a->n_tokens - first : room->most;
        const int n_threads = apr_threads(a->work.n_threads, a->n_out, apr_host_linear_steps(a));
#pragma omp parallel for schedule(static) num_threads(n_threads)
        for (int64_t t = 0; t < n; t++) round_token(a, product, room, first, t);
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
        for (int64_t r = 0; r < a->n_out; r += APR_PRODUCT_WIDE_ROWS) multiply_wide_rows(a, product, room, first, n, r);
    }
}

static bool is_wide(const apr_product *product) { return product->widen != NULL && apr_products()->wide_pays; }

/* The same numbers either way, and so whatever the number of tokens. */
static void multiply_stored(const apr_linear_args *a, const apr_product *product)
{
    const wide_room room = divide_workspace(a);
    if (a->n_tokens > FEW_ROUNDED && product->widen != NULL && room.most > 0) multiply_many(a, product, &room);
    else multiply_few(a, product);
}

/* NULL: rows have to be decoded. */
static const apr_product *product_of(const apr_tensor *weight, bool may_round)
{
    const apr_product *const p = &apr_products()->products[weight->dtype];
    if (weight->packing != NULL || weight->scale != NULL) return NULL;
    return (p->rounded != NULL && may_round) || p->plain != NULL ? p : NULL;
}

bool apr_host_rounds(const apr_tensor *weight)
{
    const apr_product *const product = product_of(weight, true);
    return product != NULL && product->rounded != NULL;
}

int64_t apr_host_steady_tokens(const apr_backend *backend, const apr_tensor *weight)
{
    const apr_product *const product = product_of(weight, backend == &apr_host_backend);

    if (backend == &apr_ref_backend) return INT64_MAX;
    if (product == NULL || product->rounded == NULL) return FEW_PLAIN;
    return is_wide(product) ? INT64_MAX : FEW_ROUNDED;
}

static void multiply_any(const apr_linear_args *a, bool may_round)
{
    const apr_product *const product = product_of(a->weight, may_round);

    if (a->heads.n > 0) {
        apr_host_linear_heads(a);
        return;
    }
    if (product != NULL && (a->n_tokens <= (product->rounded != NULL ? FEW_ROUNDED : FEW_PLAIN) || is_wide(product))) {
        multiply_stored(a, product);
        return;
    }
    const float *const plain = plain_rows(a->weight);
    /* few tokens: a block that stays in the first-level cache; many: read the tokens less often */
    const int64_t block = a->n_tokens < 4 ? 4 : APR_LINEAR_ROWS;
    const int64_t n_blocks = (a->n_out + block - 1) / block;

#pragma omp parallel for schedule(dynamic, 4) num_threads(apr_threads(a->work.n_threads, n_blocks, apr_host_linear_steps(a)))
    for (int64_t b = 0; b < n_blocks; b++) {
        const int64_t first = b * block, n_rows = a->n_out - first < block ? a->n_out - first : block;
        float *const decoded = a->work.data + apr_host_slice(&a->work);
        if (plain == NULL) apr_decode_rows(a->weight, first, n_rows, decoded);
        multiply(a, plain != NULL ? plain + first * a->n_in : decoded, first, n_rows);
    }
}

void apr_host_linear(const apr_op_args *args) { multiply_any(&args->linear, true); }
void apr_host_linear_exact(const apr_op_args *args) { multiply_any(&args->linear, false); }
