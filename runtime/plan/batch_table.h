/* runtime/plan/batch_table.h - the batch table: what a device receives about the rows of a batch (each a token of a sequence), and what it
 * returns for them.
 *
 * A batch has space for APR_ROWS_MAX_TOKENS rows however few sequences there are. The ends of prompts are rows as well, and a row's results must
 * not depend on the number of sequences.
 *
 * The layout is the same in device memory, where operations read it (kernels/ops.h), and in pinned host memory, where it is written. A
 * row has `most` page numbers, of which only those up to its position count. A prompt of one sequence uses the first row's pages. */
#ifndef APR_RUNTIME_STEP_TABLE_H
#define APR_RUNTIME_STEP_TABLE_H

#include "kernels/cuda/api.h"
#include "kernels/cuda/rows_args.h"

typedef struct apr_batch_table {
    apr_cuda_topk_result *found;  /* [n_rows] results for each row's logits, copied back */
    int64_t *positions;           /* [n_rows]; the first of the arrays that are sent */
    int32_t *ids, *slots, *pages; /* ids and slots (sequence numbers): [n_rows]; pages: [n_rows, most] */
    int64_t most;
} apr_batch_table;

/* Number of pages of a sequence of n_ctx positions. */
static inline int64_t apr_batch_pages(int64_t n_ctx) { return (n_ctx + APR_PAGE_CELLS - 1) / APR_PAGE_CELLS; }

/* Maximum rows of a batch of several sequences. */
static inline int64_t apr_batch_rows(int64_t n_sequences)
{
    return n_sequences > APR_ROWS_MAX_TOKENS ? n_sequences : (int64_t)APR_ROWS_MAX_TOKENS;
}

/* Bytes that are sent for n_used of n_rows rows. The counts of a plan are below 2^31. */
static inline uint64_t apr_batch_sent_bytes(int64_t n_rows, int64_t n_used, int64_t n_ctx)
{
    return (uint64_t)n_rows * 16 + (uint64_t)n_used * (uint64_t)apr_batch_pages(n_ctx) * 4;
}

/* Bytes of the whole table, a multiple of 64. */
static inline uint64_t apr_batch_table_bytes(int64_t n_rows, int64_t n_ctx)
{
    return ((uint64_t)n_rows * sizeof(apr_cuda_topk_result) + apr_batch_sent_bytes(n_rows, n_rows, n_ctx) + 63) / 64 * 64;
}

static inline apr_batch_table apr_batch_table_at(void *memory, int64_t n_rows, int64_t n_ctx)
{
    apr_batch_table t = {.found = memory, .most = apr_batch_pages(n_ctx)};
    t.positions = (int64_t *)(void *)(t.found + n_rows);
    t.ids = (int32_t *)(void *)(t.positions + n_rows);
    t.slots = t.ids + n_rows;
    t.pages = t.slots + n_rows;
    return t;
}

#endif
