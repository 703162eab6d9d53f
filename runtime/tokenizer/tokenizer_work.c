/* tokenizer_work.c - the memory of one call to encode, tokens of single bytes, and the merging of symbols.
 *
 * Symbols are merged the best pair first, with a heap of candidates. When one of its symbols is merged with another, a candidate stays in
 * the heap and is skipped as stale when it is popped. The time is O(n log n) in the symbols of a word, so one very long word is not a
 * problem. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>

static apr_status no_memory(const apr_token_work *work) { return apr_no_memory(work->err, "the tokens of a text"); }

apr_status apr_grow_escaped(apr_token_work *work, size_t n_bytes)
{
    char *const escaped = apr_grow(work->escaped, &work->escaped_capacity, n_bytes + 1, 1);
    if (escaped == NULL) return no_memory(work);
    work->escaped = escaped;
    return APR_OK;
}

apr_status apr_push_id(apr_token_work *work, int32_t id)
{
    int32_t *const ids = apr_grow(work->ids, &work->ids_capacity, work->n_ids + 1, sizeof work->ids[0]);
    if (ids == NULL) return no_memory(work);
    work->ids = ids;
    work->ids[work->n_ids++] = id;
    return APR_OK;
}

/* --- tokens of bytes --- */

void apr_find_byte_ids(apr_tokenizer *tokenizer)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        tokenizer->byte_ids[byte] = vocab->byte_fallback ? apr_token_table_find(&tokenizer->tokens, vocab, text, 6) : -1;
    }
}

apr_status apr_push_bytes(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool *has_bytes)
{
    *has_bytes = true;
    for (size_t i = 0; i < n_bytes; i++) *has_bytes = *has_bytes && tokenizer->byte_ids[(uint8_t)text[i]] >= 0;
    for (size_t i = 0; i < n_bytes && *has_bytes; i++) APR_TRY(apr_push_id(work, tokenizer->byte_ids[(uint8_t)text[i]]));
    return APR_OK;
}

/* --- merging --- */

apr_status apr_push_symbol(apr_token_work *work, int32_t id, size_t start, size_t n_bytes)
{
    apr_symbol *const symbols = apr_grow(work->symbols, &work->symbols_capacity, work->n_symbols + 1, sizeof work->symbols[0]);
    if (symbols == NULL) return no_memory(work);
    work->symbols = symbols;
    const int32_t i = (int32_t)work->n_symbols++;
    if (i > 0) symbols[i - 1].next = i;
    symbols[i] = (apr_symbol){.prev = i - 1, .next = -1, .id = id, .start = (uint32_t)start, .n_bytes = (uint32_t)n_bytes};
    return APR_OK;
}

/* Maps a score to a sort key: a higher score has a smaller key (NaN included). IEEE floats sort like integers once negative ones are
 * inverted; here inverted again, so that high scores have small keys. */
static uint32_t score_key(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    if (bits == 0x80000000u) bits = 0; /* -0 is 0 */
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

static bool goes_before(const apr_merge_candidate *a, const apr_merge_candidate *b)
{
    return a->key != b->key ? a->key < b->key : a->left < b->left;
}

static void push_candidate(apr_token_work *work, apr_merge_candidate candidate)
{
    size_t i = work->n_heap++;
    for (; i > 0 && goes_before(&candidate, &work->heap[(i - 1) / 2]); i = (i - 1) / 2) work->heap[i] = work->heap[(i - 1) / 2];
    work->heap[i] = candidate;
}

static apr_merge_candidate pop_candidate(apr_token_work *work)
{
    const apr_merge_candidate top = work->heap[0], last = work->heap[--work->n_heap];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < work->n_heap; i = child) {
        if (child + 1 < work->n_heap && goes_before(&work->heap[child + 1], &work->heap[child])) child++;
        if (!goes_before(&work->heap[child], &last)) break;
        work->heap[i] = work->heap[child];
    }
    work->heap[i] = last;
    return top;
}

/* The key is the rank of the merge. Without merges (SentencePiece) it is the score of the token with both texts. */
static bool find_candidate(const apr_tokenizer *tokenizer, const apr_token_work *work, const char *text, int32_t left,
                           apr_merge_candidate *candidate)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    const apr_symbol *const a = &work->symbols[left], *const b = &work->symbols[a->next];

    *candidate = (apr_merge_candidate){.left = left, .n_bytes = a->n_bytes + b->n_bytes};
    if (tokenizer->merges.slots != NULL) {
        const apr_merge_slot *const merge = apr_merge_table_find(&tokenizer->merges, a->id, b->id);
        if (merge == NULL) return false;
        candidate->key = merge->rank;
        candidate->merged = merge->merged;
        return true;
    }
    if (vocab->scores == NULL) return false;
    candidate->merged = apr_token_table_find(&tokenizer->tokens, vocab, text + a->start, candidate->n_bytes);
    if (candidate->merged < 0 || apr_token_is_control(vocab, (size_t)candidate->merged)) return false;
    if (vocab->types != NULL && vocab->types[candidate->merged] == APR_TOKEN_BYTE) return false; /* the text "<0x41>" is not a byte */
    candidate->key = score_key(vocab->scores[candidate->merged]);
    return true;
}

static void add_candidate(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, int32_t left)
{
    apr_merge_candidate candidate;
    if (left < 0 || work->symbols[left].next < 0) return;
    if (find_candidate(tokenizer, work, text, left, &candidate)) push_candidate(work, candidate);
}

apr_status apr_merge_symbols(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text)
{
    if (work->n_symbols < 2) return APR_OK;
    /* at most n - 1 candidates at first, and two more for each of the n - 1 merges */
    apr_merge_candidate *const heap = apr_grow(work->heap, &work->heap_capacity, 3 * work->n_symbols, sizeof work->heap[0]);
    if (heap == NULL) return no_memory(work);
    work->heap = heap;

    work->n_heap = 0;
    for (size_t i = 0; i + 1 < work->n_symbols; i++) add_candidate(tokenizer, work, text, (int32_t)i);
    while (work->n_heap > 0) {
        const apr_merge_candidate best = pop_candidate(work);
        apr_symbol *const left = &work->symbols[best.left];
        if (left->n_bytes == 0 || left->next < 0) continue;
        apr_symbol *const right = &work->symbols[left->next];
        if (left->n_bytes + right->n_bytes != best.n_bytes) continue;

        left->id = best.merged;
        left->n_bytes = best.n_bytes;
        left->next = right->next;
        right->n_bytes = 0;
        if (left->next >= 0) work->symbols[left->next].prev = best.left;
        add_candidate(tokenizer, work, text, left->prev);
        add_candidate(tokenizer, work, text, best.left);
    }
    return APR_OK;
}
