/* same_vocabulary.c - compares two vocabularies token by token, as bytes. */
#include "runtime/check/same_vocabulary.h"

#include <string.h>

enum { MOST_BYTES = 1024 }; /* longer tokens are compared by their length and their first 1024 bytes */

/* 0 for unused ids and for ids after the last. */
static size_t bytes_of(const apr_subject *s, size_t id, char bytes[MOST_BYTES])
{
    return apr_tokenizer_token_bytes(s->tokenizer, (int32_t)id, true, bytes, MOST_BYTES);
}

static size_t count_tokens(const apr_subject *s)
{
    char bytes[MOST_BYTES];
    size_t n = 0;
    for (size_t id = 0; id < s->vocab->n_tokens; id++) n += bytes_of(s, id, bytes) > 0;
    return n;
}

apr_status apr_vocabularies_agree(const apr_subject *a, const apr_subject *b, apr_error *err)
{
    const size_t n_a = count_tokens(a), n_b = count_tokens(b);
    const size_t n = a->vocab->n_tokens > b->vocab->n_tokens ? a->vocab->n_tokens : b->vocab->n_tokens;
    char of_a[MOST_BYTES], of_b[MOST_BYTES];

    if (n_a != n_b)
        return apr_fail(err, APR_E_UNSUPPORTED, "the vocabularies are different: %s has %zu tokens and %s has %zu", a->path, n_a, b->path,
                        n_b);
    for (size_t id = 0; id < n; id++) {
        const size_t bytes_a = bytes_of(a, id, of_a), bytes_b = bytes_of(b, id, of_b);
        const size_t kept = bytes_a < MOST_BYTES ? bytes_a : MOST_BYTES;
        if (bytes_a == bytes_b && memcmp(of_a, of_b, kept) == 0) continue;
        return apr_fail(err, APR_E_UNSUPPORTED, "the vocabularies are different: token %zu is '%.*s' in %s and '%.*s' in %s", id,
                        (int)(bytes_a < 64 ? bytes_a : 64), of_a, a->path, (int)(bytes_b < 64 ? bytes_b : 64), of_b, b->path);
    }
    return APR_OK;
}
