/* prefault.h - allocates the pages of a file in memory (tmpfs) before its bytes are written.
 *
 * tmpfs allocates and clears a page at its first write, 4 KiB at a time, and threads that do so at once wait for one another. If the
 * kernel has large pages and collapses small ones into them on request (MADV_COLLAPSE, since Linux 6.1), background threads ask for
 * large pages instead, 2 MiB at a time, while others still read, plan and compute. That takes a tenth of the time. Without large pages
 * nothing happens here, and pages are allocated at their first write. The file's length, its bytes and the errors of a full file
 * system do not change. */
#ifndef APR_FORMATS_AHEAD_H
#define APR_FORMATS_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_prefault apr_prefault;

/* For a file in memory that is n_bytes long and empty. NULL: not possible here; write as usual. The caller owns the descriptor
 * and leaves it open until apr_prefault_stop. */
apr_prefault *apr_prefault_start(int fd, uint64_t n_bytes);
/* Waits until the pages of [start, end) are allocated, or the threads have given up. Any number of threads may wait. NULL is fine. */
void apr_prefault_wait(apr_prefault *ahead, uint64_t start, uint64_t end);
void apr_prefault_stop(apr_prefault *ahead); /* NULL is fine */

/* Maps bytes [start, end) of the file for writing, at an address that allows large pages; start is a multiple of the page size.
 * NULL and errno on failure. Unmap with munmap. */
void *apr_prefault_map(int fd, uint64_t start, uint64_t end);

#endif
