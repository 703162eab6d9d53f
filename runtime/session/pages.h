/* runtime/session/pages.h - which pages of the cache belong to which sequence.
 *
 * Keys and values of several sequences lie in pages of APR_PAGE_CELLS positions, any of which any sequence may have (kernels/ops.h,
 * apr_cache). A sequence is given one when it comes to it and gives all back at its end. What several sequences have begun with alike lies
 * in pages that they share: only whole ones, which nobody writes any more; the last who has one gives it back. */
#ifndef APR_RUNTIME_PAGES_H
#define APR_RUNTIME_PAGES_H

#include "formats/base/status.h"
#include "kernels/ops.h"

typedef struct apr_pages {
    int64_t n_pages, n_sequences, most; /* most: pages that a sequence can have */
    int64_t n_free;
    int32_t *free;   /* [n_pages], the first n_free: the next one to be given is the last of these */
    int32_t *n_uses; /* [n_pages] by how many sequences */
    int32_t *tables; /* [n_sequences, most] */
    int64_t *n_held; /* [n_sequences] */
} apr_pages;

/* For sequences of at most n_ctx positions. A zeroed one may be closed. */
apr_status apr_pages_open(apr_pages *pages, int64_t n_pages, int64_t n_sequences, int64_t n_ctx, apr_error *err);
void apr_pages_close(apr_pages *pages);

/* Room for the sequence's first n_positions. APR_E_NO: there are not so many free pages, and nothing has changed. */
apr_status apr_pages_extend(apr_pages *pages, int64_t sequence, int64_t n_positions, apr_error *err);
void apr_pages_release(apr_pages *pages, int64_t sequence);
/* `to`, which has none, gets those of the first n_positions of `from`: whole pages that it has. */
void apr_pages_share(apr_pages *pages, int64_t from, int64_t to, int64_t n_positions);

/* [most] of a sequence. */
const int32_t *apr_pages_of(const apr_pages *pages, int64_t sequence);

#endif
