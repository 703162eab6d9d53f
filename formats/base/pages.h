/* pages.h - large arrays of zeros straight from the system, in large pages where it has them.
 *
 * An array of gigabytes that is written once a pass costs a fault for each page of 4 KiB at first, and address translations later. In
 * pages of 2 MiB both are 512 times fewer. Memory is given when it is first touched, by the thread that touches it. */
#ifndef APR_FORMATS_PAGES_H
#define APR_FORMATS_PAGES_H

#include <stddef.h>

/* NULL: no memory. n > 0 */
void *apr_pages_alloc(size_t n);
void apr_pages_free(void *pages, size_t n); /* NULL is allowed */

#endif
