/* vocab_index.h - ids by text. Of two tokens with one text the first is found. */
#ifndef APR_FORMATS_VOCAB_INDEX_H
#define APR_FORMATS_VOCAB_INDEX_H

#include "formats/model/vocab.h"

typedef struct apr_vocab_index {
    const apr_vocab *vocab; /* borrowed */
    uint32_t *slots;        /* id + 1; open addressing */
    size_t mask;
    int64_t twin; /* an id whose text an earlier one has, or -1 */
} apr_vocab_index;

/* Which tokens are found: all but empty ones, or of those only the types in the mask 1 << apr_token_type. */
enum { APR_ALL_TYPES = ~0 };

/* False: no memory. Close it in any case. */
bool apr_vocab_index_open(apr_vocab_index *index, const apr_vocab *vocab, int type_mask);
int64_t apr_vocab_index_find(const apr_vocab_index *index, const char *text, size_t n_bytes); /* -1: none */
void apr_vocab_index_close(apr_vocab_index *index);

#endif
