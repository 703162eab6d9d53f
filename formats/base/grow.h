/* grow.h - arrays that grow while they are filled. Each time by half or more, so that adding an element takes constant time on average.
 *
 *     item *const items = apr_grow(list->items, &list->capacity, list->n_items + 1, sizeof *items);
 *     if (items == NULL) return apr_no_memory(err, "a list");
 *     list->items = items; */
#ifndef APR_FORMATS_GROW_H
#define APR_FORMATS_GROW_H

#include "formats/base/arena.h"

/* Makes an array of *capacity elements (malloc'ed; NULL: 0) long enough for n > 0 of them. NULL: out of memory, and nothing has changed. */
void *apr_grow(void *array, size_t *capacity, size_t n, size_t elem_bytes);
/* The same for an array in an arena, where a shorter one is left behind. New elements are zeroed. */
void *apr_arena_grow(apr_arena *arena, void *array, size_t *capacity, size_t n, size_t elem_bytes);

#endif
