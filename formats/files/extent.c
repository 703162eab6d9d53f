/* extent.c - writes pieces of a file at their offsets. */
#define _GNU_SOURCE /* sync_file_range */
#include "formats/files/extent.h"

#include "formats/files/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { WRITEBACK_BYTES = 32 * 1024 * 1024 };

int apr_write_at(int fd, const void *bytes, size_t n_bytes, uint64_t at)
{
    const uint8_t *p = bytes;

    while (n_bytes > 0) {
        const ssize_t n = pwrite(fd, p, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? EIO : errno;
        p += n;
        at += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

/* A window may contain pieces that other threads have not written yet; the final fsync writes those. */
void apr_start_writeback(int fd, uint64_t start, uint64_t end)
{
    const uint64_t from = start / WRITEBACK_BYTES * WRITEBACK_BYTES, to = end / WRITEBACK_BYTES * WRITEBACK_BYTES;
    if (to > from) sync_file_range(fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
}

apr_status apr_extent_put(const apr_extent *extent, uint64_t at, const void *bytes, size_t n_bytes, apr_error *err)
{
    if (at > extent->n_bytes || n_bytes > extent->n_bytes - at)
        return apr_fail(err, APR_E_USAGE, "%s: more bytes than the layout has", extent->path);
    const int error = apr_write_at(extent->fd, bytes, n_bytes, extent->offset + at);
    if (error == EFAULT) APR_TRY(apr_inputs_check(err)); /* the source is a mapped input that was truncated */
    if (error != 0)
        return apr_fail(err, APR_E_IO, "%s: writing failed after %.1f MiB: %s%s", extent->path, (double)(extent->offset + at) / 0x1p20,
                        strerror(error), extent->advice);
    apr_start_writeback(extent->fd, extent->offset + at, extent->offset + at + n_bytes);
    return APR_OK;
}
