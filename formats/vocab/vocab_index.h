/* vocab_index.h - a hash table from text to id. Of two tokens with the same text the first is found. */
#ifndef APR_FORMATS_VOCAB_INDEX_H
#define APR_FORMATS_VOCAB_INDEX_H

#include "formats/vocab/vocab.h"

typedef struct apr_vocab_index {
    const apr_vocab *vocab; /* borrowed */
    uint32_t *slots;        /* id + 1; open addressing */
    size_t mask;
    int64_t duplicate_id; /* an id with the same text as an earlier one, or -1 */
} apr_vocab_index;

/* Which tokens are indexed: those that are not empty, and whose type is in the mask of 1 << apr_token_type. */
enum { APR_ALL_TYPES = ~0 };

/* False: out of memory. Close it in any case. */
bool apr_vocab_index_open(apr_vocab_index *index, const apr_vocab *vocab, int type_mask);
int64_t apr_vocab_index_find(const apr_vocab_index *index, const char *text, size_t n_bytes); /* -1: none */
void apr_vocab_index_close(apr_vocab_index *index);

#endif
