/* formats/base/extent.h - where bytes of an unfinished file will lie, for threads that write pieces of them at once and in any order.
 *
 * An extent is part of an open file, which stays its owner's: nothing is put after the file was finished or abandoned. What was put
 * is not checked again; the owner is told when all of it is there (apr_out_pass). */
#ifndef APR_FORMATS_EXTENT_H
#define APR_FORMATS_EXTENT_H

#include "formats/base/ahead.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_extent {
    int fd;
    uint64_t offset, n_bytes;
    uint8_t *mapped;    /* where the file system is memory: the extent's bytes there; else NULL */
    apr_ahead *ahead;   /* what makes the file's pages, or NULL */
    const char *path;   /* of the file, for sentences */
    const char *advice; /* what ends the sentence of a failure: "; ..." or "" */
    bool wants_crc;     /* the owner asks for the CRC-32 of all of it */
} apr_extent;

/* Bytes [at, at + n_bytes) of the extent. Beyond its end: APR_E_USAGE. Any number of threads at once. */
apr_status apr_extent_put(const apr_extent *extent, uint64_t at, const void *bytes, size_t n_bytes, apr_error *err);

/* All of the bytes, however often it takes. 0 or errno. */
int apr_write_at(int fd, const void *bytes, size_t n_bytes, uint64_t at);

/* Asks the kernel to start writing to the disk what lies before `end` since the last such boundary, if [start, end) crosses one: so
 * the fsync at the end has little left. Does not wait. */
void apr_start_writeback(int fd, uint64_t start, uint64_t end);

#endif
