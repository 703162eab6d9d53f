/* formats/files/extent.h - a byte range of an unfinished file. Several threads write pieces of it at once and in any order.
 *
 * An extent is a part of an open file that its owner keeps. Put nothing after the file was finished or abandoned. The bytes are not
 * checked again; when all of them are written, the caller tells the owner with apr_out_advance. */
#ifndef APR_FORMATS_EXTENT_H
#define APR_FORMATS_EXTENT_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_extent {
    int fd;
    uint64_t offset, n_bytes;
    const char *path;   /* of the file, for messages */
    const char *advice; /* appended to error messages: "; ..." or "" */
    bool wants_crc;     /* the owner needs the CRC-32 of the whole extent */
} apr_extent;

/* Writes bytes [at, at + n_bytes) of the extent. APR_E_USAGE past its end. Any number of threads at once. */
apr_status apr_extent_put(const apr_extent *extent, uint64_t at, const void *bytes, size_t n_bytes, apr_error *err);

/* Writes all of the bytes, in as many calls as it takes. 0 or errno. */
int apr_write_at(int fd, const void *bytes, size_t n_bytes, uint64_t at);

/* Asks the kernel to start writing back the bytes between the last two 32 MiB boundaries, if [start, end) crosses one. The final fsync
 * then has little left to do. Does not wait. */
void apr_start_writeback(int fd, uint64_t start, uint64_t end);

#endif
