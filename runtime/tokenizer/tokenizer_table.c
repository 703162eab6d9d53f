/* tokenizer_table.c - finds tokens and merges: hash tables text -> id and (id, id) -> merge, and sets of tokens sorted by their bytes. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <time.h>

/* --- hash tables --- */

/* 64 x 64 -> 128 bit product, folded with xor, so that every input bit affects every output bit. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_text(uint64_t seed, const char *text, size_t n_bytes)
{
    uint64_t hash = seed ^ n_bytes;
    for (; n_bytes >= 8; n_bytes -= 8, text += 8) hash = mix(hash ^ apr_load_le64(text), 0x9e3779b97f4a7c15u ^ seed);
    uint64_t tail = 0;
    memcpy(&tail, text, n_bytes);
    return mix(hash ^ tail, 0xd6e8feb86659fd93u ^ seed);
}

static size_t hash_pair(uint64_t seed, int32_t left, int32_t right)
{
    return (size_t)mix(((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ seed, 0x9e3779b97f4a7c15u ^ seed);
}

/* The seed depends on the table's address and the time. It only decides which slots collide; results do not depend on it. */
static uint64_t new_seed(const void *where)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return mix((uint64_t)(uintptr_t)where ^ 0xa0761d6478bd642fu, (uint64_t)now.tv_nsec * 2 + 0xe7037ed1a0b428dbu);
}

/* The number of slots: a power of two; the table is at most half full. */
static size_t slots_for(size_t n)
{
    size_t n_slots = 16;
    while (n_slots / 2 < n) n_slots *= 2;
    return n_slots;
}

/* The slot that holds the text, or the empty slot for it. */
static size_t token_slot(const apr_token_table *table, const apr_vocab *vocab, const char *text, size_t n_bytes)
{
    size_t i = hash_text(table->seed, text, n_bytes) & table->mask;
    for (; table->slots[i] >= 0; i = (i + 1) & table->mask) {
        const apr_str token = vocab->tokens[table->slots[i]];
        if (token.n_bytes == n_bytes && memcmp(token.text, text, n_bytes) == 0) break;
    }
    return i;
}

apr_status apr_token_table_open(apr_token_table *table, const apr_vocab *vocab, apr_arena *arena, apr_error *err)
{
    const size_t n_slots = slots_for(vocab->n_tokens);
    table->slots = apr_arena_array(arena, n_slots, sizeof table->slots[0]);
    if (table->slots == NULL) return apr_no_memory(err, "the tokenizer's vocabulary");
    memset(table->slots, 0xff, n_slots * sizeof table->slots[0]);
    table->mask = n_slots - 1;
    table->seed = new_seed(table->slots);

    for (size_t id = 0; id < vocab->n_tokens; id++) {
        const apr_str token = vocab->tokens[id];
        const bool is_hole = vocab->types != NULL && vocab->types[id] == APR_TOKEN_UNUSED;
        if (token.n_bytes == 0 || is_hole) continue; /* no text is encoded as an empty token */
        const size_t slot = token_slot(table, vocab, token.text, token.n_bytes);
        if (table->slots[slot] < 0) table->slots[slot] = (int32_t)id; /* of tokens with the same text, the first is used */
        if (token.n_bytes > table->max_bytes) table->max_bytes = token.n_bytes;
    }
    return APR_OK;
}

int32_t apr_token_table_find(const apr_token_table *table, const apr_vocab *vocab, const char *text, size_t n_bytes)
{
    if (n_bytes == 0 || n_bytes > table->max_bytes) return -1;
    return table->slots[token_slot(table, vocab, text, n_bytes)];
}

static size_t merge_slot(const apr_merge_table *table, int32_t left, int32_t right)
{
    size_t i = hash_pair(table->seed, left, right) & table->mask;
    while (table->slots[i].left >= 0 && (table->slots[i].left != left || table->slots[i].right != right)) i = (i + 1) & table->mask;
    return i;
}

const apr_merge_slot *apr_merge_table_find(const apr_merge_table *table, int32_t left, int32_t right)
{
    if (left < 0 || right < 0 || table->slots == NULL) return NULL;
    const apr_merge_slot *const slot = &table->slots[merge_slot(table, left, right)];
    return slot->left >= 0 ? slot : NULL;
}

static apr_status missing_token(size_t rank, const apr_str *merge, apr_error *err)
{
    const int n[2] = {merge[0].n_bytes < 80 ? (int)merge[0].n_bytes : 80, merge[1].n_bytes < 80 ? (int)merge[1].n_bytes : 80};
    return apr_fail(err, APR_E_DAMAGED,
                    "the tokenizer's merge %zu (\"%.*s\" + \"%.*s\") needs tokens that the vocabulary does not have; "
                    "tokens and merges are from different tokenizers",
                    rank, n[0], merge[0].text, n[1], merge[1].text);
}

apr_status apr_merge_table_open(apr_merge_table *table, const apr_vocab *vocab, const apr_token_table *tokens, apr_arena *arena,
                                apr_error *err)
{
    if (vocab->n_merges == 0) return APR_OK;
    if (vocab->n_merges > UINT32_MAX / 4 || vocab->merges == NULL)
        return apr_fail(err, APR_E_DAMAGED, "the tokenizer states %zu merges, which is not possible", vocab->n_merges);
    const size_t n_slots = slots_for(vocab->n_merges);
    table->slots = apr_arena_array(arena, n_slots, sizeof table->slots[0]);
    char *const both = apr_arena_alloc(arena, tokens->max_bytes);
    if (table->slots == NULL || both == NULL) return apr_no_memory(err, "the tokenizer's merges");
    for (size_t i = 0; i < n_slots; i++) table->slots[i].left = -1;
    table->mask = n_slots - 1;
    table->seed = new_seed(table->slots);

    for (size_t rank = 0; rank < vocab->n_merges; rank++) {
        const apr_str *const merge = &vocab->merges[2 * rank];
        const int32_t left = apr_token_table_find(tokens, vocab, merge[0].text, merge[0].n_bytes);
        const int32_t right = apr_token_table_find(tokens, vocab, merge[1].text, merge[1].n_bytes);
        if (left < 0 || right < 0 || merge[0].n_bytes + merge[1].n_bytes > tokens->max_bytes) return missing_token(rank, merge, err);
        memcpy(both, merge[0].text, merge[0].n_bytes);
        memcpy(both + merge[0].n_bytes, merge[1].text, merge[1].n_bytes);
        const int32_t merged = apr_token_table_find(tokens, vocab, both, merge[0].n_bytes + merge[1].n_bytes);
        if (merged < 0) return missing_token(rank, merge, err);
        /* a pair that is listed twice has its later rank, as in the tokenizers library */
        table->slots[merge_slot(table, left, right)] =
            (apr_merge_slot){.left = left, .right = right, .rank = (uint32_t)rank, .merged = merged};
    }
    return APR_OK;
}

/* --- sorted sets --- */

/* By bytes; a prefix is before longer texts; equal texts by id. */
static int compare_added(const void *pa, const void *pb)
{
    const apr_added_token *const a = pa, *const b = pb;
    const size_t n = a->text.n_bytes < b->text.n_bytes ? a->text.n_bytes : b->text.n_bytes;
    const int order = memcmp(a->text.text, b->text.text, n);

    if (order != 0) return order;
    if (a->text.n_bytes != b->text.n_bytes) return a->text.n_bytes < b->text.n_bytes ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

void apr_set_index(apr_added_set *set)
{
    size_t i = 0;
    if (set->n_tokens > 1) qsort(set->tokens, set->n_tokens, sizeof set->tokens[0], compare_added);
    for (unsigned byte = 0; byte < 256; byte++) {
        while (i < set->n_tokens && (uint8_t)set->tokens[i].text.text[0] < byte) i++;
        set->first[byte] = i;
    }
    set->first[256] = set->n_tokens;
}

void apr_set_narrow(const apr_added_set *set, size_t depth, uint8_t byte, size_t *low, size_t *high)
{
    const unsigned bounds[2] = {byte, byte + 1u};
    size_t found[2];

    for (int i = 0; i < 2; i++) {
        size_t a = *low, b = *high;
        while (a < b) {
            const size_t middle = a + (b - a) / 2;
            if ((uint8_t)set->tokens[middle].text.text[depth] < bounds[i]) a = middle + 1;
            else b = middle;
        }
        found[i] = a;
    }
    *low = found[0];
    *high = found[1];
}
