/* imatrix.h - importance: how much each column of each matrix matters, as the mean square of what a text gave it to multiply.
 *
 * The field calls the file an imatrix. Its tensors have ggml's names and orders; formats/gguf/gguf_imatrix.c reads and writes it. */
#ifndef APR_FORMATS_IMATRIX_H
#define APR_FORMATS_IMATRIX_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one matrix, or of one for each expert. */
typedef struct apr_imatrix_entry {
    const char *name;              /* ggml's, of the tensor */
    int64_t n_matrices, n_columns; /* of a .dat, which does not tell: 1 and all numbers together */
    double *sums;                  /* [n_matrices, n_columns] of the squares of the inputs; finite, not negative */
    double *counts;                /* [n_matrices] rows that were summed up; 0: no token came to that expert */
} apr_imatrix_entry;

typedef struct apr_imatrix {
    const char *path;
    apr_imatrix_entry *entries; /* sorted by name, each name once */
    size_t n_entries;
    const char **datasets; /* texts that it was made of, as they were named */
    size_t n_datasets;
    int64_t chunk_count, chunk_size; /* windows that were seen, and tokens of one; 0: not told */
    bool is_legacy;                  /* a .dat: counts are windows, sums their means of squares times that */
    const char *terms;               /* of an unfinished one: what it is made of (see runtime/calibrate); NULL: it is finished */
    apr_arena arena;
} apr_imatrix;

/* Room for one more entry of that shape, zeros, at the end (unsorted); NULL without memory. The table has room for n_room. */
apr_status apr_imatrix_start(apr_imatrix *imatrix, const char *path, size_t n_room, apr_error *err);
apr_imatrix_entry *apr_imatrix_add(apr_imatrix *imatrix, const char *name, int64_t n_matrices, int64_t n_columns);
/* Puts the entries in order. APR_E_DAMAGED: two of one name. */
apr_status apr_imatrix_sort(apr_imatrix *imatrix, apr_error *err);
/* NULL when it is not there. */
const apr_imatrix_entry *apr_imatrix_find(const apr_imatrix *imatrix, const char *name);
/* CRC-32 of names, sums and counts in their order, whatever the file is called. */
uint32_t apr_imatrix_sum(const apr_imatrix *imatrix);
void apr_imatrix_close(apr_imatrix *imatrix);

/* A GGUF whose general.type is "imatrix", or the older .dat. APR_E_DAMAGED: neither, or numbers that can be none. The file is an input
 * of this process, but a file of our own (`is_ours`: one that is written anew again and again). */
apr_status apr_imatrix_open(apr_imatrix *imatrix, const char *path, bool is_ours, apr_error *err);
/* The same from memory; the bytes are not needed afterwards. */
apr_status apr_imatrix_parse(apr_imatrix *imatrix, const char *path, const uint8_t *data, size_t n_bytes, apr_error *err);

/* As llama.cpp writes it, byte for byte. `terms`: unfinished, with sums in double, to go on from; no .dat. */
typedef struct apr_imatrix_out {
    bool as_dat, overwrite;
    const char *terms; /* NULL: finished */
} apr_imatrix_out;
apr_status apr_imatrix_write(const apr_imatrix *imatrix, const char *path, const apr_imatrix_out *how, apr_error *err);

#endif
