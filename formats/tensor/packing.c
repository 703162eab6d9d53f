/* packing.c - counts and sizes of a packed matrix; reads no numbers. */
#include "formats/tensor/packing.h"

#include "formats/base/bytes.h"

int64_t apr_packing_groups(const apr_packing *packing) { return apr_div_up(packing->columns, packing->scale_columns); }

int64_t apr_packing_scale_rows(const apr_packing *packing) { return apr_div_up(packing->matrix_rows, packing->scale_rows); }

uint64_t apr_packing_bytes(const apr_packing *packing, int64_t n_rows)
{
    const uint64_t all = (uint64_t)packing->rows, some = (uint64_t)n_rows;
    uint64_t n_bytes = 0, product;

    for (size_t i = 0; i < packing->n_parts; i++) n_bytes += packing->parts[i]->n_bytes;
    if (all == 0 || some >= all) return n_bytes;
    /* The remainder is smaller than the number of rows, which is below 2^32 in every file. The product is only checked for overflow. */
    if (__builtin_mul_overflow(n_bytes % all, some, &product)) product = UINT64_MAX - all;
    return n_bytes / all * some + product / all + (product % all != 0);
}
