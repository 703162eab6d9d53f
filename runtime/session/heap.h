/* runtime/session/heap.h - memory allocated by the C library, by its own count; plans are checked against it.
 *
 * The count covers the whole process, so allocations of other threads are included. Freed blocks that the library caches may still
 * count, some KiB in all. Thread stacks and mapped files do not count. */
#ifndef APR_RUNTIME_HEAP_H
#define APR_RUNTIME_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Bytes in use; UINT64_MAX: this C library does not count. */
uint64_t apr_heap_in_use(void);
/* The real size of an allocated block: at least what was requested; 0 for NULL. */
size_t apr_heap_block(void *p);

#endif
