/* pages.c - anonymous mappings. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */
#include "formats/base/pages.h"

#include <sys/mman.h>

void *apr_pages_alloc(size_t n)
{
    void *const pages = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(pages, n, MADV_HUGEPAGE); /* a wish: kernels without large pages refuse, harmlessly */
#endif
    return pages;
}

void apr_pages_free(void *pages, size_t n)
{
    if (pages != NULL) munmap(pages, n);
}
