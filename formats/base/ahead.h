/* ahead.h - pages of a new file in memory, there before its bytes come.
 *
 * A page of a file in memory is found, cleared and entered when it is first written, 4 KiB at a time, and threads that do so at once
 * wait for one another. Where the kernel has large pages and collapses small ones into them on request (MADV_COLLAPSE, since Linux
 * 6.1), threads ask for those instead, 2 MiB at a time, while others still read, plan and compute; that takes a tenth of the time. Where
 * it does not, or there are no large pages left, nothing happens here, and pages come as they ever did. The file's length, its bytes
 * and what a full file system says stay as they are. */
#ifndef APR_FORMATS_AHEAD_H
#define APR_FORMATS_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_ahead apr_ahead;

/* For a file in memory that is n_bytes long already and empty. NULL: there is nothing to be had so. The descriptor stays the caller's,
 * and open until apr_ahead_stop. */
apr_ahead *apr_ahead_start(int fd, uint64_t n_bytes);
/* Waits until the pages of [start, end) are there, or will not come. Any number of threads. NULL is fine. */
void apr_ahead_await(apr_ahead *ahead, uint64_t start, uint64_t end);
void apr_ahead_stop(apr_ahead *ahead); /* NULL is fine */

/* Bytes [start, end) of the file as memory that may be written, at addresses where large pages can lie; start is a multiple of the
 * page's size. NULL and errno where it fails. Ended by munmap. */
void *apr_ahead_map(int fd, uint64_t start, uint64_t end);

#endif
