/* runtime/session/pages.h - which pages of the KV cache belong to which sequence.
 *
 * Keys and values of several sequences are in pages of APR_PAGE_CELLS positions; any sequence may own any page (kernels/ops.h,
 * apr_cache). A sequence gets a page when it reaches the page's first position, and frees all pages at its end. Sequences with a common
 * prefix share its whole pages, which are no longer written; the last owner frees a shared page. Defined in session_sequences.c. */
#ifndef APR_RUNTIME_PAGES_H
#define APR_RUNTIME_PAGES_H

#include "formats/base/status.h"
#include "kernels/ops.h"

typedef struct apr_pages {
    int64_t n_pages, n_sequences, most; /* most: largest number of pages of a sequence */
    int64_t n_free;
    int32_t *free;   /* [n_pages] a stack: the first n_free elements are free pages, the last of these is used next */
    int32_t *n_uses; /* [n_pages] number of sequences that own it */
    int32_t *tables; /* [n_sequences, most] page numbers, in the order of positions */
    int64_t *n_held; /* [n_sequences] */
} apr_pages;

/* For sequences of at most n_ctx positions. A zeroed struct may be closed. */
apr_status apr_pages_open(apr_pages *pages, int64_t n_pages, int64_t n_sequences, int64_t n_ctx, apr_error *err);
void apr_pages_close(apr_pages *pages);

/* Allocates pages for the sequence's first n_positions. APR_E_NO: there are not enough free pages, and nothing has changed. */
apr_status apr_pages_extend(apr_pages *pages, int64_t sequence, int64_t n_positions, apr_error *err);
void apr_pages_release(apr_pages *pages, int64_t sequence);
/* Gives `to`, which has no pages, those of the first n_positions of `from`. n_positions is a multiple of APR_PAGE_CELLS that `from` has. */
void apr_pages_share(apr_pages *pages, int64_t from, int64_t to, int64_t n_positions);

/* The page table of a sequence, [most]. */
static inline const int32_t *apr_pages_of(const apr_pages *pages, int64_t sequence) { return pages->tables + sequence * pages->most; }

#endif
