/* failing_host.h - calls of the C library that fail on role: malloc, calloc and realloc as if memory were short, fclose as if what was
 * buffered could not be written, fsync and unlinkat as if the disk had a fault.
 *
 * Test programs are linked with --wrap for these functions and for free (Makefile). So calls from the project's objects come here, calls
 * within the C library and other shared libraries do not. Every call passes through until a failure is asked for. The numbers belong to
 * the calling thread: other threads neither fail nor count. */
#ifndef APR_TESTS_FAILING_HOST_H
#define APR_TESTS_FAILING_HOST_H

#include <stdint.h>

/* The nth allocation from now on (from 1) returns NULL; later ones succeed again. 0: none fails. Counting begins at 0. */
void failing_host_allocation(int64_t nth);
/* Blocks that were allocated since then, less those that were freed. */
int64_t failing_host_blocks(void);

/* The nth fclose from now on closes its stream and returns EOF. 0: none fails. */
void failing_host_close(int64_t nth);

/* The nth fsync, or unlinkat of a file, from now on fails with EIO. 0: none fails. */
void failing_host_sync(int64_t nth);
void failing_host_unlink(int64_t nth);

#endif
