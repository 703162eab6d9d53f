/* runtime/check/row_blocks.h - splits a tensor into blocks of whole rows, about 1 MiB of float32 each: the unit of work of a thread. */
#ifndef APR_RUNTIME_ROW_BLOCKS_H
#define APR_RUNTIME_ROW_BLOCKS_H

#include "formats/tensor/model.h"

enum { APR_BLOCK_VALUES = 1 << 18 };

typedef struct apr_row_blocks {
    int64_t n_blocks, rows_per_block, n_rows, n_columns;
} apr_row_blocks;

static inline apr_row_blocks apr_row_blocks_of(const apr_tensor *tensor)
{
    apr_row_blocks blocks = {.n_rows = apr_tensor_rows(tensor), .n_columns = apr_tensor_columns(tensor)};

    if (apr_tensor_elems(tensor) == 0) return blocks;
    blocks.rows_per_block = blocks.n_columns < APR_BLOCK_VALUES ? APR_BLOCK_VALUES / blocks.n_columns : 1;
    if (blocks.rows_per_block > blocks.n_rows) blocks.rows_per_block = blocks.n_rows;
    blocks.n_blocks = (blocks.n_rows + blocks.rows_per_block - 1) / blocks.rows_per_block;
    return blocks;
}

/* Rows of block i; its first row is i * rows_per_block. */
static inline int64_t apr_block_rows(const apr_row_blocks *blocks, int64_t i)
{
    const int64_t left = blocks->n_rows - i * blocks->rows_per_block;
    return left < blocks->rows_per_block ? left : blocks->rows_per_block;
}

/* Bytes that hold any of the blocks as float32. */
static inline size_t apr_block_bytes(const apr_row_blocks *blocks)
{
    return (size_t)blocks->rows_per_block * (size_t)blocks->n_columns * sizeof(float);
}

#endif
