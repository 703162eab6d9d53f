/* heap.c - the count of glibc, or of a sanitizer whose allocator replaces glibc's. */
#include "runtime/session/heap.h"

#include <malloc.h>

extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

uint64_t apr_heap_in_use(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL) return __sanitizer_get_current_allocated_bytes();
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd; /* in the arenas; in blocks that are mapped on their own */
#else
    return UINT64_MAX;
#endif
}

size_t apr_heap_block(void *p) { return malloc_usable_size(p); }
