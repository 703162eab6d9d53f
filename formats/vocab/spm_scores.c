/* spm_scores.c - applies the merges to each token's own text; the rank of the last merge gives the score. */
#include "formats/vocab/spm_scores.h"
#include "formats/base/grow.h"
#include "formats/vocab/special_tokens.h"
#include "formats/vocab/vocab_index.h"

#include <stdlib.h>
#include <string.h>

/* Longer tokens count as inexact, because the work is quadratic. Real ones have at most a hundred characters. */
enum { MAX_SYMBOLS = 1024 };
static const uint32_t never = UINT32_MAX;

typedef struct merge {
    uint32_t left, right; /* ids + 1; 0: empty slot */
    uint32_t rank, merged;
} merge;

typedef struct work {
    const apr_vocab *vocab;
    apr_vocab_index index;
    merge *merges; /* open addressing by pair */
    size_t mask;
    uint32_t *ranks; /* [n_tokens] R, or `never` */
    apr_spm_scores *result;
} work;

static merge *slot_of(const work *w, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(h ^ h >> 29) & w->mask;
    while (w->merges[at].left != 0 && (w->merges[at].left != left || w->merges[at].right != right)) at = (at + 1) & w->mask;
    return &w->merges[at];
}

static const merge *find_merge(const work *w, int64_t left, int64_t right)
{
    if (left < 0 || right < 0) return NULL;
    const merge *const m = slot_of(w, (uint32_t)left + 1, (uint32_t)right + 1);
    return m->left != 0 ? m : NULL;
}

/* False: out of memory. For a pair that is listed twice the later rank counts, as in the tokenizers library. */
static bool index_merges(work *w)
{
    const apr_vocab *const v = w->vocab;
    size_t n_slots = 16;
    char *both = NULL;
    size_t capacity = 0, rank = 0;

    while (n_slots < 2 * v->n_merges) n_slots *= 2;
    w->mask = n_slots - 1;
    w->merges = calloc(n_slots, sizeof *w->merges);
    if (w->merges == NULL) return false;
    for (; rank < v->n_merges; rank++) {
        const apr_str left = v->merges[2 * rank], right = v->merges[2 * rank + 1];
        const size_t n = left.n_bytes + right.n_bytes;
        char *const grown = apr_grow(both, &capacity, n + 1, 1);
        if (grown == NULL) break;
        both = grown;
        if (left.n_bytes > 0) memcpy(both, left.text, left.n_bytes);
        if (right.n_bytes > 0) memcpy(both + left.n_bytes, right.text, right.n_bytes);
        const int64_t l = apr_vocab_index_find(&w->index, left.text, left.n_bytes),
                      r = apr_vocab_index_find(&w->index, right.text, right.n_bytes), merged = apr_vocab_index_find(&w->index, both, n);
        if (l < 0 || r < 0 || merged < 0) {
            if (w->result->bad_merge < 0) w->result->bad_merge = (int64_t)rank;
            continue;
        }
        *slot_of(w, (uint32_t)l + 1, (uint32_t)r + 1) = (merge){(uint32_t)l + 1, (uint32_t)r + 1, (uint32_t)rank, (uint32_t)merged};
    }
    free(both);
    return rank == v->n_merges; /* otherwise memory ran out */
}

/* The ids of a token's characters; -1: the character is not a token. Returns 0 if there are too many. */
static size_t cut(const work *w, apr_str token, int64_t *symbols)
{
    size_t n = 0;
    for (size_t at = 0, end; at < token.n_bytes; at = end) {
        end = at + 1;
        while (end < token.n_bytes && ((uint8_t)token.text[end] & 0xc0) == 0x80) end++;
        if (n == MAX_SYMBOLS) return 0;
        symbols[n++] = apr_vocab_index_find(&w->index, token.text + at, end - at);
    }
    return n;
}

/* Applies the merges to one text. Returns how many symbols are left; *last is the rank of the last merge. */
static size_t join(const work *w, int64_t *symbols, size_t n, uint32_t *last)
{
    *last = never;
    for (;;) {
        const merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const merge *const m = find_merge(w, symbols[i], symbols[i + 1]);
            if (m != NULL && (best == NULL || m->rank < best->rank)) {
                best = m;
                at = i;
            }
        }
        if (best == NULL) return n;
        symbols[at] = best->merged;
        memmove(symbols + at + 1, symbols + at + 2, (n - at - 2) * sizeof *symbols);
        n--;
        *last = best->rank;
    }
}

static void rank_tokens(work *w)
{
    const apr_vocab *const v = w->vocab;
    int64_t symbols[MAX_SYMBOLS];

    for (size_t id = 0; id < v->n_tokens; id++) {
        const size_t n_cut = cut(w, v->tokens[id], symbols);
        w->ranks[id] = never;
        const size_t n = n_cut > 1 ? join(w, symbols, n_cut, &w->ranks[id]) : n_cut;
        if (n != 1) w->ranks[id] = never;
        const bool is_inexact = n == 2 || (n == 0 && v->tokens[id].n_bytes > 0);
        /* added tokens are cut out of a text before it is merged */
        if (is_inexact && !apr_type_is_added(apr_token_type_of(v, id)) && w->result->inexact < 0) w->result->inexact = (int64_t)id;
    }
}

typedef struct ranked {
    uint32_t rank, id;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *const x = a, *const y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Scores: first the tokens that a merge makes, in order of its rank, then the other normal tokens. The rest keep 0. */
static bool spread_scores(work *w)
{
    const apr_vocab *const v = w->vocab;
    ranked *const order = malloc((v->n_tokens + 1) * sizeof *order);
    size_t n = 0;

    if (order == NULL) return false;
    for (size_t id = 0; id < v->n_tokens; id++)
        if (v->types == NULL || v->types[id] == APR_TOKEN_NORMAL || w->ranks[id] != never)
            order[n++] = (ranked){w->ranks[id], (uint32_t)id};
    if (n > 0) qsort(order, n, sizeof *order, by_rank);
    for (size_t i = 0; i < n; i++) w->result->scores[order[i].id] = i > 0 ? -(float)i : 0.0f;
    /* above 2^24 neighbouring scores round to the same float */
    if (n > (size_t)1 << 24 && w->result->inexact < 0) w->result->inexact = order[n - 1].id;
    free(order);
    return true;
}

apr_status apr_spm_scores_make(const apr_vocab *vocab, apr_arena *arena, apr_spm_scores *result, apr_error *err)
{
    work w = {.vocab = vocab, .result = result};

    *result = (apr_spm_scores){.scores = apr_arena_array(arena, vocab->n_tokens, sizeof(float)), .inexact = -1, .bad_merge = -1};
    w.ranks = malloc((vocab->n_tokens + 1) * sizeof *w.ranks);
    const bool opened = apr_vocab_index_open(&w.index, vocab, APR_ALL_TYPES);
    bool done = result->scores != NULL && w.ranks != NULL && opened && index_merges(&w);
    if (done) {
        rank_tokens(&w);
        done = spread_scores(&w);
    }
    apr_vocab_index_close(&w.index);
    free(w.merges);
    free(w.ranks);
    return done ? APR_OK : apr_no_memory(err, "the scores of the vocabulary");
}
