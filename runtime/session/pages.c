/* pages.c - a stack of free pages, a page table a sequence, and a reference count a page. */
#include "runtime/session/pages.h"

#include <stdlib.h>
#include <string.h>

static int64_t pages_for(int64_t n_positions) { return (n_positions + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; }

apr_status apr_pages_open(apr_pages *p, int64_t n_pages, int64_t n_sequences, int64_t n_ctx, apr_error *err)
{
    *p = (apr_pages){.n_pages = n_pages, .n_sequences = n_sequences, .most = pages_for(n_ctx), .n_free = n_pages};
    if (n_pages < 1 || n_pages > INT32_MAX || n_sequences < 1 || p->most < 1 || n_sequences > INT64_MAX / 8 / p->most)
        return apr_fail(err, APR_E_USAGE, "a cache of %lld pages for %lld sequences of %lld positions is not possible", (long long)n_pages,
                        (long long)n_sequences, (long long)n_ctx);
    p->free = calloc((size_t)n_pages, sizeof *p->free);
    p->n_uses = calloc((size_t)n_pages, sizeof *p->n_uses);
    p->tables = calloc((size_t)(n_sequences * p->most), sizeof *p->tables);
    p->n_held = calloc((size_t)n_sequences, sizeof *p->n_held);
    if (p->free == NULL || p->n_uses == NULL || p->tables == NULL || p->n_held == NULL) {
        apr_pages_close(p);
        return apr_no_memory(err, "the table of pages");
    }
    for (int64_t i = 0; i < n_pages; i++) p->free[i] = (int32_t)(n_pages - 1 - i);
    return APR_OK;
}

void apr_pages_close(apr_pages *p)
{
    free(p->free);
    free(p->n_uses);
    free(p->tables);
    free(p->n_held);
    *p = (apr_pages){0};
}

apr_status apr_pages_extend(apr_pages *p, int64_t sequence, int64_t n_positions, apr_error *err)
{
    int64_t *const n_held = &p->n_held[sequence];
    const int64_t wanted = pages_for(n_positions);

    if (wanted > p->most || wanted - *n_held > p->n_free)
        return apr_fail(err, APR_E_NO, "the cache is full: %lld positions of a sequence need %lld more pages, and %lld of %lld are free",
                        (long long)n_positions, (long long)(wanted - *n_held), (long long)p->n_free, (long long)p->n_pages);
    for (; *n_held < wanted; ++*n_held) {
        const int32_t page = p->free[--p->n_free];
        p->n_uses[page] = 1;
        p->tables[sequence * p->most + *n_held] = page;
    }
    return APR_OK;
}

void apr_pages_release(apr_pages *p, int64_t sequence)
{
    while (p->n_held[sequence] > 0) {
        const int32_t page = p->tables[sequence * p->most + --p->n_held[sequence]];
        if (--p->n_uses[page] == 0) p->free[p->n_free++] = page;
    }
}

void apr_pages_share(apr_pages *p, int64_t from, int64_t to, int64_t n_positions)
{
    const int64_t n = n_positions / APR_PAGE_CELLS;

    for (int64_t i = 0; i < n; i++) {
        const int32_t page = p->tables[from * p->most + i];
        p->tables[to * p->most + i] = page;
        p->n_uses[page]++;
    }
    p->n_held[to] = n;
}

const int32_t *apr_pages_of(const apr_pages *p, int64_t sequence) { return p->tables + sequence * p->most; }
