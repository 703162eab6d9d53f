/* attention.c - keys and values in the cache, and attention over them tile by tile.
 *
 * A thread takes one key/value head and a few tokens: all query heads that read it. It walks over the cache in tiles of
 * 64 cells, decodes each tile once for all its queries, and keeps for each query the largest score so far, the sum of the
 * weights and the weighted sum of the values; when a larger score turns up, both sums are scaled down (online softmax). */
#include "kernels/host/host_ops.h"
#include "kernels/host/lanes.h"

#include <math.h>

static uint8_t *cache_row(const apr_cache *cache, int64_t position, int64_t n_heads, int64_t head)
{
    return cache->data + (position % cache->n_cells * n_heads + head) * cache->row_bytes;
}

static void store(const apr_kv_store_args *a, const apr_cache *cache, const float *x, int64_t width)
{
    const apr_codec *const codecs = apr_host_codecs();
    const int64_t n = a->n_kv_heads * width;
    /* the heads of a cell follow each other, and a head is whole blocks: one call for all */
    for (int64_t t = 0; t < a->n_tokens; t++)
        codecs[cache->dtype].encode(x + t * n, cache_row(cache, a->position + t, a->n_kv_heads, 0), n);
}

void apr_host_kv_store(const apr_op_args *args)
{
    const apr_kv_store_args *const a = &args->kv_store;
    store(a, &a->keys, a->k, a->key_dim);
    if (a->v != NULL) store(a, &a->values, a->v, a->value_dim);
}

/* One thread's share: queries of tokens [token, token + n_tokens) that read kv_head. Row r of the queries is token r / group,
 * head kv_head * group + r % group. */
typedef struct share {
    const apr_attend_args *a;
    const apr_codec *codecs;
    int64_t kv_head, token, n_tokens, group;
    float *keys, *values;     /* [APR_ATTEND_CELLS, key_dim], [.., value_dim] */
    float *sums;              /* [n_rows, value_dim] */
    float *scores;            /* [APR_ATTEND_CELLS] */
    float *largest, *weights; /* [n_rows] */
} share;

static void decode_tile(const share *s, int64_t position, int64_t n_cells)
{
    const apr_attend_args *const a = s->a;
    for (int64_t c = 0; c < n_cells; c++) {
        s->codecs[a->keys.dtype].decode(cache_row(&a->keys, position + c, a->n_kv_heads, s->kv_head), s->keys + c * a->key_dim, a->key_dim);
        s->codecs[a->values.dtype].decode(cache_row(&a->values, position + c, a->n_kv_heads, s->kv_head), s->values + c * a->value_dim,
                                          a->value_dim);
    }
}

/* scores[c] = q . key[c] * scale */
LANES_INLINE void score_cells(const float *q, const float *keys, int64_t n_cells, int64_t head_dim, float scale, float *scores)
{
    float dots[4][6];
    int64_t c = 0;
    for (; c + 4 <= n_cells; c += 4) {
        lanes_dots(4, 1, keys + c * head_dim, head_dim, q, head_dim, head_dim, dots);
        for (int i = 0; i < 4; i++) scores[c + i] = dots[i][0] * scale;
    }
    for (; c < n_cells; c++) {
        lanes_dots(1, 1, keys + c * head_dim, head_dim, q, head_dim, head_dim, dots);
        scores[c] = dots[0][0] * scale;
    }
}

/* sums = sums * shrink + weights . values */
LANES_INLINE void gather_values(const float *weights, const float *values, int64_t n_cells, int64_t head_dim, float shrink, float *sums)
{
    int64_t d = 0;
    for (; d + 2 * N_LANES <= head_dim; d += 2 * N_LANES) {
        lanes even = LANES_LOAD(sums + d) * shrink, odd = LANES_LOAD(sums + d + N_LANES) * shrink;
        for (int64_t c = 0; c < n_cells; c++) {
            even += weights[c] * LANES_LOAD(values + c * head_dim + d);
            odd += weights[c] * LANES_LOAD(values + c * head_dim + d + N_LANES);
        }
        LANES_STORE(sums + d) = even;
        LANES_STORE(sums + d + N_LANES) = odd;
    }
    for (; d < head_dim; d++) {
        float sum = sums[d] * shrink;
        for (int64_t c = 0; c < n_cells; c++) sum += weights[c] * values[c * head_dim + d];
        sums[d] = sum;
    }
}

/* One query against the cells [begin, end) of the decoded tile. */
LANES_INLINE void attend_tile(const share *s, int64_t row, int64_t begin, int64_t end)
{
    const apr_attend_args *const a = s->a;
    const int64_t head = s->kv_head * s->group + row % s->group, token = s->token + row / s->group;
    const float *const q = a->q + (token * a->n_heads + head) * a->key_dim;
    float largest = s->largest[row], total = 0.0f;

    score_cells(q, s->keys + begin * a->key_dim, end - begin, a->key_dim, a->scale, s->scores);
    for (int64_t c = 0; a->softcap > 0.0f && c < end - begin; c++) s->scores[c] = a->softcap * tanhf(s->scores[c] / a->softcap);
    for (int64_t c = 0; c < end - begin; c++) largest = s->scores[c] > largest ? s->scores[c] : largest;
    const float shrink = expf(s->largest[row] - largest); /* the first tile's -inf gives 0 */
    for (int64_t c = 0; c < end - begin; c++) total += s->scores[c] = expf(s->scores[c] - largest);
    gather_values(s->scores, s->values + begin * a->value_dim, end - begin, a->value_dim, shrink, s->sums + row * a->value_dim);
    s->largest[row] = largest;
    s->weights[row] = s->weights[row] * shrink + total;
}

LANES_INLINE void attend_share_body(const int row_tile, const int token_tile, const share *s)
{
    const apr_attend_args *const a = s->a;
    const int64_t n_rows = s->n_tokens * s->group, last = a->position + s->token + s->n_tokens - 1;
    const int64_t first = apr_attend_first(a, a->position + s->token);

    (void)row_tile, (void)token_tile;
    for (int64_t i = 0; i < n_rows * a->value_dim; i++) s->sums[i] = 0.0f;
    for (int64_t row = 0; row < n_rows; row++) { /* a sink is a score that was there before all others, without a value */
        s->largest[row] = a->sinks != NULL ? a->sinks[s->kv_head * s->group + row % s->group] : -INFINITY;
        s->weights[row] = a->sinks != NULL ? 1.0f : 0.0f;
    }
    for (int64_t p = first; p <= last; p += APR_ATTEND_CELLS) {
        const int64_t n_cells = last - p + 1 < APR_ATTEND_CELLS ? last - p + 1 : APR_ATTEND_CELLS;
        decode_tile(s, p, n_cells);
        for (int64_t row = 0; row < n_rows; row++) {
            const int64_t own = a->position + s->token + row / s->group, oldest = apr_attend_first(a, own);
            const int64_t begin = oldest > p ? oldest - p : 0, end = own - p + 1 < n_cells ? own - p + 1 : n_cells;
            if (begin < end) attend_tile(s, row, begin, end);
        }
    }
    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t head = s->kv_head * s->group + row % s->group, token = s->token + row / s->group;
        float *const out = a->out + (token * a->n_heads + head) * a->value_dim;
        for (int64_t d = 0; d < a->value_dim; d++) out[d] = s->sums[row * a->value_dim + d] / s->weights[row];
    }
}

LANES_CLONES(attend_share, attend_share_body, (const share *s), s)

void apr_host_attend(const apr_op_args *args)
{
    const apr_attend_args *const a = &args->attend;
    const int64_t group = a->n_heads / a->n_kv_heads, max_rows = apr_attend_rows(a->n_heads, a->n_kv_heads);
    const int64_t tokens_each = max_rows / group, n_spans = (a->n_tokens + tokens_each - 1) / tokens_each;

#pragma omp parallel for schedule(dynamic) num_threads(a->work.n_threads)
    for (int64_t i = 0; i < n_spans * a->n_kv_heads; i++) {
        float *const work = a->work.data + apr_host_slice(&a->work);
        const int64_t token = i / a->n_kv_heads * tokens_each, left = a->n_tokens - token;
        share s = {.a = a, .codecs = apr_host_codecs(), .kv_head = i % a->n_kv_heads, .token = token, .group = group};

        s.n_tokens = left < tokens_each ? left : tokens_each;
        s.keys = work;
        s.values = s.keys + APR_ATTEND_CELLS * a->key_dim;
        s.sums = s.values + APR_ATTEND_CELLS * a->value_dim;
        s.scores = s.sums + max_rows * a->value_dim;
        s.largest = s.scores + APR_ATTEND_CELLS;
        s.weights = s.largest + max_rows;
        attend_share(&s);
    }
}
