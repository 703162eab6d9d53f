/* imatrix.h - an importance matrix (imatrix): for each column of each weight matrix the mean square of its inputs over a text.
 *
 * Its tensors have ggml's names and orders. formats/gguf/gguf_imatrix.c reads and writes the file. */
#ifndef APR_FORMATS_IMATRIX_H
#define APR_FORMATS_IMATRIX_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One weight matrix, or one stack with a matrix per expert. */
typedef struct apr_imatrix_entry {
    const char *name;              /* of the tensor, in ggml's naming */
    int64_t n_matrices, n_columns; /* a .dat file does not state them: 1 and the count of all numbers */
    double *sums;                  /* [n_matrices, n_columns] sums of the squared inputs; finite, not negative */
    double *counts;                /* [n_matrices] input rows that were summed; 0: no token was routed to that expert */
} apr_imatrix_entry;

typedef struct apr_imatrix {
    const char *path;
    apr_imatrix_entry *entries; /* sorted by name, each name once */
    size_t n_entries;
    const char **datasets; /* names of the texts it was computed from */
    size_t n_datasets;
    int64_t chunk_count, chunk_size; /* windows that were evaluated, and tokens per window; 0: not stated */
    bool is_legacy;                  /* a .dat file: counts are windows, and sums are mean squares times that count */
    const char *terms;               /* of an unfinished imatrix: what it is computed from (see runtime/calibrate); NULL: it is finished */
    apr_arena arena;
} apr_imatrix;

/* Start allocates a table for `capacity` entries. Add appends one entry of that shape, zeroed and unsorted. It returns NULL if memory
 * runs out. */
apr_status apr_imatrix_start(apr_imatrix *imatrix, const char *path, size_t capacity, apr_error *err);
apr_imatrix_entry *apr_imatrix_add(apr_imatrix *imatrix, const char *name, int64_t n_matrices, int64_t n_columns);
/* Sorts the entries by name. APR_E_DAMAGED: two have the same name. */
apr_status apr_imatrix_sort(apr_imatrix *imatrix, apr_error *err);
/* NULL when there is none. */
const apr_imatrix_entry *apr_imatrix_find(const apr_imatrix *imatrix, const char *name);
/* CRC-32 of names, sums and counts in order. The file's name does not count. */
uint32_t apr_imatrix_sum(const apr_imatrix *imatrix);
void apr_imatrix_close(apr_imatrix *imatrix);

/* Reads a GGUF whose general.type is "imatrix", or the older .dat. APR_E_DAMAGED: the file is neither, or has impossible numbers. The
 * file counts as an input of this process, unless `is_ours` (a checkpoint that this process rewrites itself). */
apr_status apr_imatrix_open(apr_imatrix *imatrix, const char *path, bool is_ours, apr_error *err);
/* The same from memory; the bytes are not needed afterwards. */
apr_status apr_imatrix_parse(apr_imatrix *imatrix, const char *path, const uint8_t *data, size_t n_bytes, apr_error *err);

/* Writes the file byte for byte as llama.cpp does. With `terms` it is an unfinished GGUF, with sums in double, from which a run can
 * resume. */
typedef struct apr_imatrix_out {
    bool as_dat, overwrite;
    const char *terms; /* NULL: finished */
} apr_imatrix_out;
apr_status apr_imatrix_write(const apr_imatrix *imatrix, const char *path, const apr_imatrix_out *how, apr_error *err);

#endif
