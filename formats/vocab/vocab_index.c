/* vocab_index.c - a hash table over the texts of a vocabulary. */
#include "formats/vocab/vocab_index.h"

#include <stdlib.h>
#include <string.h>

static size_t hash_text(const char *text, size_t n_bytes)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < n_bytes; i++) h = (h ^ (uint8_t)text[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

/* The slot of that text, or the empty slot where it must be inserted. */
static uint32_t *slot_of(const apr_vocab_index *index, const char *text, size_t n_bytes)
{
    size_t at = hash_text(text, n_bytes) & index->mask;
    for (; index->slots[at] != 0; at = (at + 1) & index->mask) {
        const apr_str other = index->vocab->tokens[index->slots[at] - 1];
        if (other.n_bytes == n_bytes && memcmp(other.text, text, n_bytes) == 0) break;
    }
    return &index->slots[at];
}

bool apr_vocab_index_open(apr_vocab_index *index, const apr_vocab *vocab, int type_mask)
{
    size_t n_slots = 16;
    bool has_empty = false;

    while (n_slots < 2 * vocab->n_tokens) n_slots *= 2;
    *index = (apr_vocab_index){.vocab = vocab, .mask = n_slots - 1, .duplicate_id = -1};
    index->slots = calloc(n_slots, sizeof *index->slots);
    if (index->slots == NULL) return false;
    for (size_t id = 0; id < vocab->n_tokens; id++) {
        const apr_str token = vocab->tokens[id];
        const int type = vocab->types != NULL ? vocab->types[id] : APR_TOKEN_NORMAL;
        if ((type_mask & 1 << (type & 15)) == 0) continue;
        if (token.n_bytes == 0) { /* cannot be found, and two of them are duplicates */
            if (has_empty && index->duplicate_id < 0) index->duplicate_id = (int64_t)id;
            has_empty = true;
            continue;
        }
        uint32_t *const slot = slot_of(index, token.text, token.n_bytes);
        if (*slot == 0) *slot = (uint32_t)id + 1;
        else if (index->duplicate_id < 0) index->duplicate_id = (int64_t)id;
    }
    return true;
}

int64_t apr_vocab_index_find(const apr_vocab_index *index, const char *text, size_t n_bytes)
{
    return n_bytes > 0 ? (int64_t)*slot_of(index, text, n_bytes) - 1 : -1;
}

void apr_vocab_index_close(apr_vocab_index *index)
{
    free(index->slots);
    *index = (apr_vocab_index){0};
}
