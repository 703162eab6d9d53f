/* runtime/session/heap.h - how much memory the C library has given out, by its own count: what plans are held against.
 *
 * The count is the process's: whatever other threads do meanwhile is in it. Blocks that were freed but are kept at hand by the
 * library may still count, some KiB in all; thread stacks and mapped files do not. */
#ifndef APR_RUNTIME_HEAP_H
#define APR_RUNTIME_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Bytes in use; UINT64_MAX: this C library does not count. */
uint64_t apr_heap_in_use(void);
/* What an allocated block really takes: at least what was asked for. 0 for NULL. */
size_t apr_heap_block(void *p);

#endif
