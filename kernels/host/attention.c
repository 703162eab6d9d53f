/* attention.c - attends over the keys and values of the cache, tile by tile.
 *
 * A share of the work is one key/value head, a block of query rows that read it (a row is one query head of one token), and a part of
 * the context. It walks over the cache in tiles of 64 cells, and decodes each tile once for all its rows. For each row it keeps the
 * largest score so far, the sum of the weights and the weighted sum of the values; when a larger score appears, both sums are rescaled
 * (online softmax).
 *
 * If there are fewer than APR_ATTEND_PARTS blocks and heads, as with a single token, the context is also split into parts, whose results
 * are combined in order (as in flash decoding). The split depends on the shape alone, so results do not depend on the number of threads. */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"

#include <math.h>
#include <string.h>

/* Minimum cells of a part, because combining parts has a cost; how many cells ahead to prefetch. */
enum { LEAST_CELLS = 256, CELLS_AHEAD = 8 };

/* How the work is divided. */
typedef struct division {
    int64_t group;    /* query heads of a key/value head */
    int64_t n_rows;   /* rows of a block */
    int64_t n_blocks; /* blocks for each key/value head */
    int64_t n_parts;  /* parts of the context */
} division;

/* Row r of a key/value head is token r / group, head kv_head * group + r % group. */
typedef struct share {
    const apr_attend_args *a;
    const apr_codec *codecs;
    int64_t kv_head, row, n_rows, group; /* rows [row, row + n_rows) */
    int64_t first, end;                  /* positions */
    bool first_part, all;                /* first_part includes the sinks; all: it is the only part */
    float *keys, *values;                /* [APR_ATTEND_CELLS, key_dim], [.., value_dim] */
    int64_t value_stride;                /* distance of two cells in `values` */
    float *queries;                      /* [n_rows, key_dim] */
    float *scores;                       /* [n_rows, APR_ATTEND_CELLS] */
    float *rescales;                     /* [n_rows] */
    float *sums;                         /* [n_rows, value_dim] */
    float *largest, *weights;            /* [n_rows] */
} share;

static int64_t token_of(const share *s, int64_t row) { return (s->row + row) / s->group; }
static int64_t head_of(const share *s, int64_t row) { return s->kv_head * s->group + (s->row + row) % s->group; }

/* Decodes a head's row of each of some cells. Rows of other heads are between them, too far apart for the hardware prefetcher. */
static void decode_cells(const share *s, const apr_cache *cache, int64_t position, int64_t n_cells, int64_t dim, float *to)
{
    const int64_t n_heads = s->a->n_kv_heads, ahead = CELLS_AHEAD * n_heads * cache->row_bytes;
    int64_t cell = apr_attend_cell(s->a, cache, position);

    for (int64_t c = 0; c < n_cells; c++) {
        const uint8_t *const row = cache->data + (cell * n_heads + s->kv_head) * cache->row_bytes;
        for (int64_t i = 0; i < cache->row_bytes; i += 64) __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)(ahead + i)));
        s->codecs[cache->dtype].decode(row, to + c * dim, dim);
        if (s->a->chosen != NULL) cell = c + 1 < n_cells ? apr_attend_cell(s->a, cache, position + c + 1) : 0;
        else if (cache->pages == NULL) cell = cell + 1 < cache->n_cells ? cell + 1 : 0;
        else if (c + 1 < n_cells) cell = (position + c + 1) % APR_PAGE_CELLS > 0 ? cell + 1 : apr_cache_cell(cache, position + c + 1);
    }
}

/* Where values are the first numbers of the keys, decoding the keys is enough. */
static void decode_tile(const share *s, int64_t position, int64_t n_cells)
{
    decode_cells(s, &s->a->keys, position, n_cells, s->a->key_dim, s->keys);
    if (s->values != s->keys) decode_cells(s, &s->a->values, position, n_cells, s->a->value_dim, s->values);
}

/* exp(x) for x <= 0 (0 below -87), to 2 ULP, without a branch, so that loops vectorize: 2^n e^r with n = round(x / ln 2), |r| <= ln 2 /
 * 2, and a Taylor polynomial whose eighth term is below 2^-27. */
LANES_INLINE float exp_below(float x)
{
    const float shift = 12582912.0f; /* 1.5 x 2^23: the low bits of the sum are the nearest integer */
    union {
        float f;
        uint32_t bits;
    } n = {.f = x * 0x1.715476p+0f + shift}, power;
    /* ln 2 in two parts: the product with the first is exact */
    const float whole = n.f - shift, r = (x - whole * 0x1.62e4p-1f) - whole * 0x1.7f7d1cp-20f;
    float sum = 1.0f / 5040.0f;

    sum = sum * r + 1.0f / 720.0f;
    sum = sum * r + 1.0f / 120.0f;
    sum = sum * r + 1.0f / 24.0f;
    sum = sum * r + 1.0f / 6.0f;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    power.bits = (n.bits + 127) << 23;
    return x < -87.0f ? 0.0f : sum * power.f;
}

/* Scores of n_queries rows, from `row` on, with the cells: scores[row][c] = q . key[c] * scale */
LANES_INLINE void score_rows(const lanes_shape shape, const int cell_tile, const int n_queries, const share *s, int64_t row,
                             int64_t n_cells)
{
    const int64_t dim = s->a->key_dim;
    float dots[4][6];

    for (int64_t c = 0, n; c < n_cells; c += n) {
        n = n_cells - c >= cell_tile ? cell_tile : 1;
        if (n == cell_tile) lanes_dots(shape, cell_tile, n_queries, s->keys + c * dim, dim, s->queries + row * dim, dim, dim, dots);
        else lanes_dots(shape, 1, n_queries, s->keys + c * dim, dim, s->queries + row * dim, dim, dim, dots);
        for (int q = 0; q < n_queries; q++)
            for (int64_t i = 0; i < n; i++) s->scores[(row + q) * APR_ATTEND_CELLS + c + i] = dots[i][q] * s->a->scale;
    }
}

/* Turns the scores of cells [begin, end) into weights, and sets the factor s->rescales[row] for the earlier sums. */
LANES_INLINE void weigh_row(const share *s, int64_t row, int64_t begin, int64_t end)
{
    float *const scores = s->scores + row * APR_ATTEND_CELLS, softcap = s->a->softcap;
    float lane[N_LANES], largest = s->largest[row], total = 0.0f;
    int64_t c = begin;

    for (int64_t i = begin; softcap > 0.0f && i < end; i++) scores[i] = softcap * tanhf(scores[i] / softcap);
    for (int l = 0; l < N_LANES; l++) lane[l] = largest;
    for (; c + N_LANES <= end; c += N_LANES)
        for (int l = 0; l < N_LANES; l++) lane[l] = scores[c + l] > lane[l] ? scores[c + l] : lane[l];
    for (; c < end; c++) largest = scores[c] > largest ? scores[c] : largest;
    for (int l = 0; l < N_LANES; l++) largest = lane[l] > largest ? lane[l] : largest;

    for (int64_t i = begin; i < end; i++) scores[i] = exp_below(scores[i] - largest);
    for (int l = 0; l < N_LANES; l++) lane[l] = 0.0f;
    for (c = begin; c + N_LANES <= end; c += N_LANES)
        for (int l = 0; l < N_LANES; l++) lane[l] += scores[c + l];
    for (; c < end; c++) total += scores[c];
    for (int l = 0; l < N_LANES; l++) total += lane[l];
    s->rescales[row] = exp_below(s->largest[row] - largest); /* the first tile's -inf gives 0 */
    s->largest[row] = largest;
    s->weights[row] = s->weights[row] * s->rescales[row] + total;
}

/* sums = sums * rescale + weights . values, for n_rows from `row` on, cells [begin, end) */
LANES_INLINE void gather_rows(const lanes_shape shape, const int n_rows, const share *s, int64_t row, int64_t begin, int64_t end)
{
    const int64_t dim = s->a->value_dim, stride = s->value_stride;
    lanes_weighted_sum(shape, n_rows, s->scores + row * APR_ATTEND_CELLS + begin, APR_ATTEND_CELLS, s->values + begin * stride, stride,
                       end - begin, dim, s->sums + row * dim, s->rescales + row);
}

/* The cells of the tile at p that a row attends to: [begin, end) */
typedef struct cells {
    int64_t begin, end;
} cells;

static cells cells_of(const share *s, int64_t row, int64_t p, int64_t n_cells)
{
    const int64_t own = s->a->position + token_of(s, row), oldest = apr_attend_first(s->a, own);
    return (cells){oldest > p ? oldest - p : 0, own - p + 1 < n_cells ? own - p + 1 : n_cells};
}

LANES_INLINE void attend_tile(const lanes_shape shape, const share *s, int64_t p, int64_t n_cells)
{
    const int row_tile = shape.rows; /* also the number of cells: 4 with 32 registers, else 2 */
    int64_t row = 0;

    for (; row + row_tile <= s->n_rows; row += row_tile) score_rows(shape, row_tile, row_tile, s, row, n_cells);
    for (; row < s->n_rows; row++) score_rows(shape, 4, 1, s, row, n_cells);
    for (int64_t first = 0, n; first < s->n_rows; first += n) {
        const cells of = cells_of(s, first, p, n_cells);
        /* rows with the same cells together, so that no cell is read needlessly */
        for (n = 0; first + n < s->n_rows && n < row_tile; n++) {
            const cells other = cells_of(s, first + n, p, n_cells);
            if (other.begin != of.begin || other.end != of.end) break;
            if (of.begin < of.end) weigh_row(s, first + n, of.begin, of.end);
        }
        if (of.begin >= of.end) continue;
        if (n == row_tile) gather_rows(shape, row_tile, s, first, of.begin, of.end);
        else
            for (int64_t i = 0; i < n; i++) gather_rows(shape, 1, s, first + i, of.begin, of.end);
    }
}

LANES_INLINE void attend_share_body(const lanes_shape shape, const share *s)
{
    const apr_attend_args *const a = s->a;

    for (int64_t i = 0; i < s->n_rows * a->value_dim; i++) s->sums[i] = 0.0f;
    for (int64_t row = 0; row < s->n_rows; row++) { /* a sink is a first score without a value */
        const bool has_sink = a->sinks != NULL && s->first_part;
        s->largest[row] = has_sink ? a->sinks[head_of(s, row)] : -INFINITY;
        s->weights[row] = has_sink ? 1.0f : 0.0f;
        memcpy(s->queries + row * a->key_dim, a->q + (token_of(s, row) * a->n_heads + head_of(s, row)) * a->key_dim,
               (size_t)a->key_dim * sizeof(float));
    }
    for (int64_t p = s->first; p < s->end; p += APR_ATTEND_CELLS) {
        const int64_t n_cells = s->end - p < APR_ATTEND_CELLS ? s->end - p : APR_ATTEND_CELLS;
        decode_tile(s, p, n_cells);
        attend_tile(shape, s, p, n_cells);
    }
    for (int64_t row = 0; row < s->n_rows && s->all; row++) {
        float *const out = a->out + (token_of(s, row) * a->n_heads + head_of(s, row)) * a->value_dim;
        for (int64_t d = 0; d < a->value_dim; d++) out[d] = s->sums[row * a->value_dim + d] / s->weights[row];
    }
}

LANES_CLONES(attend_share, attend_share_body, (const share *s), s)

/* --- dividing the work --- */

static division blocks_of(const apr_attend_args *a, int64_t group, int64_t n_rows)
{
    return (division){.group = group, .n_rows = n_rows, .n_blocks = (a->n_tokens * group + n_rows - 1) / n_rows, .n_parts = 1};
}

/* Large blocks, since each block decodes the cells that it reads; small blocks if large ones are too few for many threads. */
static division divide(const apr_attend_args *a)
{
    const int64_t group = a->n_heads / a->n_kv_heads, last = a->position + a->n_tokens - 1;
    const int64_t n_cells = last + 1 - apr_attend_first(a, a->position);
    const division whole = blocks_of(a, group, APR_ATTEND_ROWS);
    division small = blocks_of(a, group, APR_ATTEND_PART_ROWS);
    const int64_t most = APR_ATTEND_PARTS / (small.n_blocks * a->n_kv_heads), wanted = n_cells / LEAST_CELLS;

    if (most == 0) return whole;
    if (a->shared != NULL && wanted > 1) small.n_parts = most < wanted ? most : wanted;
    return small;
}

/* Partial results are in a->shared: sums, then all largest scores, then all weights. */
static void place_results(const apr_attend_args *a, int64_t i, share *s)
{
    s->sums = a->shared + i * APR_ATTEND_PART_ROWS * a->value_dim;
    s->largest = a->shared + APR_ATTEND_PARTS * APR_ATTEND_PART_ROWS * a->value_dim + i * APR_ATTEND_PART_ROWS;
    s->weights = s->largest + APR_ATTEND_PARTS * APR_ATTEND_PART_ROWS;
}

static void place(const apr_attend_args *a, int64_t i, float *work, share *s)
{
    const bool values_are_keys = a->values.data == a->keys.data;

    s->keys = work;
    s->values = values_are_keys ? s->keys : s->keys + APR_ATTEND_CELLS * a->key_dim;
    s->value_stride = values_are_keys ? a->key_dim : a->value_dim;
    s->queries = s->keys + APR_ATTEND_CELLS * (a->key_dim + a->value_dim);
    s->scores = s->queries + APR_ATTEND_ROWS * a->key_dim;
    s->rescales = s->scores + APR_ATTEND_ROWS * APR_ATTEND_CELLS;
    s->largest = s->rescales + APR_ATTEND_ROWS;
    s->weights = s->largest + APR_ATTEND_ROWS;
    s->sums = s->weights + APR_ATTEND_ROWS;
    if (!s->all) place_results(a, i, s);
}

/* Share i of all: the parts of a block are consecutive. */
static share share_of(const apr_attend_args *a, const division *d, int64_t i)
{
    const int64_t part = i % d->n_parts, block = i / d->n_parts / a->n_kv_heads, left = a->n_tokens * d->group - block * d->n_rows;
    share s = {.a = a,
               .codecs = apr_host_codecs(),
               .kv_head = i / d->n_parts % a->n_kv_heads,
               .row = block * d->n_rows,
               .n_rows = left < d->n_rows ? left : d->n_rows,
               .group = d->group,
               .first_part = part == 0,
               .all = d->n_parts == 1};
    const int64_t first = apr_attend_first(a, a->position + token_of(&s, 0)), end = a->position + token_of(&s, s.n_rows - 1) + 1;
    const int64_t n_tiles = (end - first + APR_ATTEND_CELLS - 1) / APR_ATTEND_CELLS;

    s.first = first + n_tiles * part / d->n_parts * APR_ATTEND_CELLS;
    s.end = part + 1 < d->n_parts ? first + n_tiles * (part + 1) / d->n_parts * APR_ATTEND_CELLS : end;
    return s;
}

/* Combines the parts of one row of a block: the shares from i on, in order. */
static void combine_row(const apr_attend_args *a, const division *d, int64_t i, int64_t row)
{
    share s = share_of(a, d, i);
    float *const out = a->out + (token_of(&s, row) * a->n_heads + head_of(&s, row)) * a->value_dim;
    float largest = -INFINITY, total = 0.0f;

    for (int64_t part = 0; part < d->n_parts; part++) {
        place_results(a, i + part, &s);
        largest = s.largest[row] > largest ? s.largest[row] : largest;
    }
    memset(out, 0, (size_t)a->value_dim * sizeof *out);
    for (int64_t part = 0; part < d->n_parts; part++) {
        place_results(a, i + part, &s);
        const float *const sums = s.sums + row * a->value_dim, factor = expf(s.largest[row] - largest);
        total += s.weights[row] * factor;
        for (int64_t k = 0; k < a->value_dim; k++) out[k] += sums[k] * factor;
    }
    for (int64_t k = 0; k < a->value_dim; k++) out[k] /= total;
}

static void attend(const apr_attend_args *a)
{
    const division d = divide(a);
    const int64_t n_shares = d.n_blocks * a->n_kv_heads * d.n_parts, n_cells = a->position + a->n_tokens - apr_attend_first(a, a->position);
    const double steps = (double)(a->n_tokens * a->n_heads) * (double)n_cells * (double)(a->key_dim + a->value_dim);

#pragma omp parallel num_threads(apr_threads(a->work.n_threads, n_shares, steps))
    {
#pragma omp for schedule(dynamic)
        for (int64_t i = n_shares - 1; i >= 0; i--) { /* the last tokens first: they read most */
            share s = share_of(a, &d, i);
            place(a, i, a->work.data + apr_host_slice(&a->work), &s);
            attend_share(&s);
        }
        if (d.n_parts > 1) {
#pragma omp for schedule(static)
            for (int64_t r = 0; r < a->n_kv_heads * a->n_tokens * d.group; r++) {
                const int64_t of_head = r / a->n_kv_heads, block = of_head / d.n_rows * a->n_kv_heads + r % a->n_kv_heads;
                combine_row(a, &d, block * d.n_parts, of_head % d.n_rows);
            }
        }
    }
}

void apr_host_attend_chosen(const apr_attend_args *args, void (*attend_to)(const apr_attend_args *args))
{
    apr_attend_args all = *args;

    if (all.chosen != NULL && all.position + all.n_tokens <= all.n_chosen) all.chosen = NULL;
    if (all.chosen == NULL) attend_to(&all);
    for (int64_t t = 0; t < all.n_tokens && all.chosen != NULL; t++) {
        const apr_attend_args one = apr_attend_chosen(&all, t, all.position + t);
        attend_to(&one);
    }
}

void apr_host_attend(const apr_op_args *args) { apr_host_attend_chosen(&args->attend, attend); }
