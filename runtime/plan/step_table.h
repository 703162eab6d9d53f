/* runtime/plan/step_table.h - what a device is told of a step's rows, each a token of a sequence, and what it finds of them.
 *
 * A step has room for APR_ROWS_MOST rows however few sequences there are: the ends of prompts are rows, too, and a row's numbers do not
 * depend on how many may be under way.
 *
 * The same layout in the device's memory, where operations read it (kernels/ops.h: tokens apart), and in pinned memory, where it is
 * written. Rows are [n_rows]; a row's pages are `most` numbers, of which those count that its position reaches. A prompt of one sequence
 * has the first row's pages. */
#ifndef APR_RUNTIME_STEP_TABLE_H
#define APR_RUNTIME_STEP_TABLE_H

#include "kernels/cuda/api.h"
#include "kernels/cuda/rows_args.h"

typedef struct apr_step_table {
    apr_cuda_found *found;        /* [n_rows] comes back, of each row's logits */
    int64_t *positions;           /* [n_rows] the first of what is sent */
    int32_t *ids, *slots, *pages; /* [n_rows]; the sequences' numbers; [n_rows, most] */
    int64_t most;
} apr_step_table;

/* Pages of a sequence of n_ctx positions. */
static inline int64_t apr_step_pages(int64_t n_ctx) { return (n_ctx + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; }

/* Rows of a step at most, of several sequences. */
static inline int64_t apr_step_rows(int64_t n_sequences) { return n_sequences > APR_ROWS_MOST ? n_sequences : (int64_t)APR_ROWS_MOST; }

/* What is sent of n_used rows of n_rows. The counts of a plan are below 2^31. */
static inline uint64_t apr_step_sent_bytes(int64_t n_rows, int64_t n_used, int64_t n_ctx)
{
    return (uint64_t)n_rows * 16 + (uint64_t)n_used * (uint64_t)apr_step_pages(n_ctx) * 4;
}

/* All of it, a multiple of 64. */
static inline uint64_t apr_step_table_bytes(int64_t n_rows, int64_t n_ctx)
{
    return ((uint64_t)n_rows * sizeof(apr_cuda_found) + apr_step_sent_bytes(n_rows, n_rows, n_ctx) + 63) / 64 * 64;
}

static inline apr_step_table apr_step_table_at(void *memory, int64_t n_rows, int64_t n_ctx)
{
    apr_step_table t = {.found = memory, .most = apr_step_pages(n_ctx)};
    t.positions = (int64_t *)(void *)(t.found + n_rows);
    t.ids = (int32_t *)(void *)(t.positions + n_rows);
    t.slots = t.ids + n_rows;
    t.pages = t.slots + n_rows;
    return t;
}

#endif
