/* matmul.c - linear layers on the host. Few tokens: a GEMV of the packed rows as they are stored, for several layers with the same input
 * at once. Many tokens: a GEMM of rows unpacked to 16 bits. Other weights: as float32 (matmul_floats.c). */
#include "kernels/host/host_ops.h"
#include "kernels/host/products/products.h"

/* The most tokens for which the GEMV is faster, because unpacking rows costs more than it saves. FP16 and BF16 are decoded for tiles of
 * float32 instead. */
static int64_t most_gemv_tokens(const apr_product *product)
{
    return product->rounded != NULL ? apr_products()->most_few : APR_PRODUCT_TOKENS;
}

/* ---- few tokens: a GEMV; each row is read once and never written decoded ---- */

/* One of several layers with the same input. If rows are stored in order, their addresses follow from the first: looking up one row
 * costs a division. */
typedef struct gemv {
    const apr_linear_args *a;
    const apr_product *product;
    const apr_product_tile *tiles; /* the inputs, rounded, in the product's order */
    const uint8_t *first;
    int64_t step; /* distance of two rows; 0: each row is looked up */
} gemv;

enum { GEMV_ROWS = 64, GEMV_BYTES = 16 << 10 };

static gemv prepare_gemv(const apr_linear_args *a, const apr_product *product)
{
    const bool in_order = apr_tensor_source(a->weight) == APR_SOURCE_IN_ORDER && a->n_out > 1;
    const uint8_t *const first = apr_tensor_row(a->weight, 0);
    return (gemv){.a = a, .product = product, .first = first, .step = in_order ? apr_tensor_row(a->weight, 1) - first : 0};
}

/* Multiplies n_rows adjacent rows with tokens [first, first + n_tokens). */
static void multiply_rows(const gemv *f, int64_t row, int64_t n_rows, int64_t first, int64_t n_tokens)
{
    const apr_linear_args *const a = f->a;
    const uint8_t *const bytes = f->step > 0 ? f->first + row * f->step : apr_tensor_row(a->weight, row);
    const apr_product_rows rows = {bytes, f->step, n_rows};
    const int64_t n_tiles = apr_product_tiles(a->n_in);

    for (int64_t t = 0; t < n_tokens; t += APR_PRODUCT_TOKENS) {
        const int n = n_tokens - t < APR_PRODUCT_TOKENS ? (int)(n_tokens - t) : APR_PRODUCT_TOKENS;
        float *const out = a->out + (first + t) * a->n_out + row;
        if (f->product->rounded != NULL) f->product->rounded(rows, a->n_in, f->tiles + t * n_tiles, n_tiles, n, out, a->n_out);
        else f->product->plain(rows, a->n_in, a->x + (first + t) * a->n_in, a->n_in, n, out, a->n_out);
        for (int i = 0; i < n && a->bias != NULL; i++)
            for (int64_t r = 0; r < n_rows; r++) out[i * a->n_out + r] += a->bias[row + r];
    }
}

/* The unit of work of a thread. Takes as many rows together as stay in the L1 cache from one group of tokens to the next. */
static void multiply_chunk(const gemv *f, int64_t chunk, int64_t first, int64_t n_tokens)
{
    const int64_t begin = chunk * GEMV_ROWS, end = f->a->n_out - begin < GEMV_ROWS ? f->a->n_out : begin + GEMV_ROWS;
    const int64_t fit = f->step > 0 ? GEMV_BYTES / f->step : 1, together = fit > 1 ? fit : 1;

    for (int64_t row = begin; row < end; row += together)
        multiply_rows(f, row, end - row < together ? end - row : together, first, n_tokens);
}

static int64_t n_chunks(const gemv *f) { return (f->a->n_out + GEMV_ROWS - 1) / GEMV_ROWS; }

/* Chunk i, counted through the chunks of all layers. */
static void multiply_chunk_of(const gemv *all, int64_t i, int64_t first, int64_t n_tokens)
{
    while (i >= n_chunks(all)) i -= n_chunks(all++);
    multiply_chunk(all, i, first, n_tokens);
}

/* The set of orders in which the products need their inputs, as bits; the number of orders in the set below one. */
static unsigned orders_of(const gemv *all, int n)
{
    unsigned orders = 0;
    for (int i = 0; i < n; i++)
        if (all[i].product->rounded != NULL) orders |= 1u << all[i].product->order;
    return orders;
}

static int count_below(unsigned orders, int order) { return __builtin_popcount(orders & ((1u << order) - 1)); }

/* Rounds the inputs of n_tokens tokens, once for each order. There is space for `capacity` tokens of each order. */
static void round_inputs(gemv *all, int n, apr_product_tile *const tiles, int64_t capacity, int64_t first, int64_t n_tokens)
{
    const apr_linear_args *const a = all[0].a;
    const int64_t n_tiles = apr_product_tiles(a->n_in);
    const unsigned orders = orders_of(all, n);

    for (int i = 0; i < n; i++) all[i].tiles = tiles + count_below(orders, all[i].product->order) * capacity * n_tiles;
    for (int order = 0; order < APR_ORDERS; order++) {
        if ((orders >> order & 1) == 0) continue;
        apr_product_tile *const of_order = tiles + count_below(orders, order) * capacity * n_tiles;
        for (int64_t t = 0; t < n_tokens; t++)
            apr_products()->round(a->x + (first + t) * a->n_in, a->n_in, (apr_product_order)order, of_order + t * n_tiles);
    }
}

/* Runs as many tokens at a time as fit in a thread's slice of the workspace: one always fits. */
static void multiply_gemv(gemv *all, int n)
{
    const apr_linear_args *const a = all[0].a;
    const int64_t n_tiles = (int64_t)(a->work.slice * sizeof(float) / sizeof(apr_product_tile));
    const int n_orders = count_below(orders_of(all, n), APR_ORDERS);
    const int64_t capacity = n_orders > 0 ? n_tiles / (apr_product_tiles(a->n_in) * n_orders) : a->n_tokens;
    int64_t chunks = 0;
    double steps = 0.0;

    for (int i = 0; i < n; i++) {
        chunks += n_chunks(&all[i]);
        steps += apr_host_linear_cost(all[i].a);
    }
    for (int64_t first = 0; first < a->n_tokens; first += capacity) {
        const int64_t n_tokens = a->n_tokens - first < capacity ? a->n_tokens - first : capacity;
        round_inputs(all, n, (apr_product_tile *)(void *)a->work.data, capacity, first, n_tokens);
#pragma omp parallel for schedule(dynamic, 1) num_threads(apr_threads(a->work.n_threads, chunks, steps))
        for (int64_t i = 0; i < chunks; i++) multiply_chunk_of(all, i, first, n_tokens);
    }
}

/* ---- many tokens: a GEMM; rows are unpacked to 16 bits, sixteen at a time ---- */

/* The workspace of all threads: inputs of `most` tokens, then sixteen rows for each thread. */
typedef struct gemm_buffers {
    apr_product_gemm_inputs *inputs;
    apr_product_gemm_rows *rows;
    int64_t n_groups, most;
} gemm_buffers;

static gemm_buffers divide_workspace(const apr_linear_args *a)
{
    gemm_buffers buffers = {.inputs = (apr_product_gemm_inputs *)(void *)a->work.data, .n_groups = apr_product_gemm_groups(a->n_in)};
    const int64_t n_bytes = (int64_t)(a->work.slice * sizeof(float)) * a->work.n_threads;
    const int64_t for_rows = buffers.n_groups * (int64_t)sizeof *buffers.rows * a->work.n_threads;
    const int64_t tile_bytes = buffers.n_groups * (int64_t)sizeof *buffers.inputs;
    const int64_t n_tiles = n_bytes > for_rows ? (n_bytes - for_rows) / tile_bytes : 0;

    buffers.rows = (apr_product_gemm_rows *)(void *)(buffers.inputs + n_tiles * buffers.n_groups);
    buffers.most = n_tiles * APR_PRODUCT_GEMM_TOKENS;
    return buffers;
}

static void round_token(const apr_linear_args *a, const apr_product *product, const gemm_buffers *buffers, int64_t first, int64_t t)
{
    apr_product_gemm_inputs *const inputs = buffers->inputs + t / APR_PRODUCT_GEMM_TOKENS * buffers->n_groups;
    apr_products()->wide_round(a->x + (first + t) * a->n_in, a->n_in, product->order, (int)(t % APR_PRODUCT_GEMM_TOKENS), inputs);
}

/* Multiplies sixteen rows, from `row` on, with tokens [first, first + n_tokens). */
static void multiply_gemm_rows(const apr_linear_args *a, const apr_product *product, const gemm_buffers *buffers, int64_t first,
                               int64_t n_tokens, int64_t row)
{
    apr_product_gemm_rows *const unpacked = buffers->rows + omp_get_thread_num() * buffers->n_groups;
    const int n_rows = a->n_out - row < APR_PRODUCT_GEMM_ROWS ? (int)(a->n_out - row) : APR_PRODUCT_GEMM_ROWS;
    const uint8_t *rows[APR_PRODUCT_GEMM_ROWS];

    for (int r = 0; r < APR_PRODUCT_GEMM_ROWS; r++) rows[r] = apr_tensor_row(a->weight, row + (r < n_rows ? r : n_rows - 1));
    const bool has_minimums = product->widen(rows, a->n_in, unpacked);
    for (int64_t t = 0; t < n_tokens; t += APR_PRODUCT_GEMM_TOKENS) {
        const int n = n_tokens - t < APR_PRODUCT_GEMM_TOKENS ? (int)(n_tokens - t) : APR_PRODUCT_GEMM_TOKENS;
        float *const out = a->out + (first + t) * a->n_out + row;
        apr_products()->wide(unpacked, has_minimums, buffers->inputs + t / APR_PRODUCT_GEMM_TOKENS * buffers->n_groups, a->n_in, n, n_rows,
                             out, a->n_out);
        if (a->bias == NULL) continue;
        for (int i = 0; i < n; i++)
            for (int r = 0; r < n_rows; r++) out[i * a->n_out + r] += a->bias[row + r];
    }
}

static void multiply_gemm(const apr_linear_args *a, const apr_product *product, const gemm_buffers *buffers)
{
    for (int64_t first = 0; first < a->n_tokens; first += buffers->most) {
        const int64_t n = a->n_tokens - first < buffers->most ? a->n_tokens - first : buffers->most;
        const int n_threads = apr_threads(a->work.n_threads, a->n_out, apr_host_linear_cost(a));
#pragma omp parallel for schedule(static) num_threads(n_threads)
        for (int64_t t = 0; t < n; t++) round_token(a, product, buffers, first, t);
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
        for (int64_t r = 0; r < a->n_out; r += APR_PRODUCT_GEMM_ROWS) multiply_gemm_rows(a, product, buffers, first, n, r);
    }
}

static bool has_gemm(const apr_product *product) { return product->widen != NULL && apr_products()->gemm_pays; }

/* Both ways give the same numbers, so results do not depend on the number of tokens. */
static void multiply_stored(const apr_linear_args *a, const apr_product *product)
{
    const gemm_buffers buffers = divide_workspace(a);
    if (a->n_tokens > most_gemv_tokens(product) && product->widen != NULL && buffers.most > 0) {
        multiply_gemm(a, product, &buffers);
        return;
    }
    gemv only = prepare_gemv(a, product);
    multiply_gemv(&only, 1);
}

/* The product of a weight's type; NULL: rows must be decoded to float32. */
static const apr_product *product_of(const apr_tensor *weight, bool may_round)
{
    const apr_product *const p = &apr_products()->products[weight->dtype];
    if (apr_tensor_is_packed(weight) || weight->scale != NULL) return NULL; /* a composed one will be in memory */
    return (p->rounded != NULL && may_round) || p->plain != NULL ? p : NULL;
}

bool apr_host_rounds_inputs(const apr_tensor *weight)
{
    const apr_product *const product = product_of(weight, true);
    return product != NULL && product->rounded != NULL;
}

int64_t apr_host_batch_invariant_tokens(const apr_backend *backend, const apr_tensor *weight)
{
    const apr_product *const product = product_of(weight, backend->linears == apr_host_linears);

    if (backend->linears == NULL) return INT64_MAX; /* ref and float64, where a sum's order does not depend on the tokens */
    if (product == NULL) return APR_PRODUCT_TOKENS;
    return has_gemm(product) ? INT64_MAX : most_gemv_tokens(product);
}

/* Can it be one of several layers in a GEMV? */
static bool uses_gemv(const apr_linear_args *a, const apr_product *product)
{
    if (product == NULL || a->heads.n > 0) return false;
    return a->n_tokens <= most_gemv_tokens(product);
}

static void multiply_any(const apr_linear_args *a, bool may_round)
{
    const apr_product *const product = product_of(a->weight, may_round);

    if (a->heads.n == 0 && (uses_gemv(a, product) || (product != NULL && has_gemm(product)))) multiply_stored(a, product);
    else apr_host_linear_floats(a);
}

/* All layers at once if each uses the GEMV, else one after another. */
static void multiply_all(const apr_linear_args *const each[], int n, bool may_round)
{
    gemv all[APR_LINEARS_MAX] = {{0}};
    int n_gemv = 0;

    for (int i = 0; i < n && i < APR_LINEARS_MAX; i++) {
        const apr_product *const product = product_of(each[i]->weight, may_round);
        if (uses_gemv(each[i], product)) all[n_gemv++] = prepare_gemv(each[i], product);
    }
    if (n_gemv == n) {
        multiply_gemv(all, n);
        return;
    }
    for (int i = 0; i < n; i++) multiply_any(each[i], may_round);
}

void apr_host_linears(const apr_linear_args *const each[], int n) { multiply_all(each, n, true); }
void apr_host_linears_exact(const apr_linear_args *const each[], int n) { multiply_all(each, n, false); }
