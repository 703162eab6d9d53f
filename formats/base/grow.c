/* grow.c - arrays that grow while they are filled. */
#include "formats/base/grow.h"

#include <stdlib.h>
#include <string.h>

/* Lists in arenas are short, and what they leave behind stays. */
enum { LEAST = 64, LEAST_IN_ARENA = 8 };

static size_t longer(size_t n, size_t least) { return n < least ? least : n + n / 2; }

void *apr_grow(void *array, size_t *capacity, size_t n, size_t elem_bytes)
{
    if (n <= *capacity) return array;
    const size_t wanted = longer(n, LEAST);
    size_t n_bytes;
    void *const grown = __builtin_mul_overflow(wanted, elem_bytes, &n_bytes) ? NULL : realloc(array, n_bytes);
    if (grown != NULL) *capacity = wanted;
    return grown;
}

void *apr_arena_grow(apr_arena *arena, void *array, size_t *capacity, size_t n, size_t elem_bytes)
{
    if (n <= *capacity) return array;
    const size_t wanted = longer(n, LEAST_IN_ARENA);
    void *const grown = apr_arena_array(arena, wanted, elem_bytes);
    if (grown == NULL) return NULL;
    if (*capacity > 0) memcpy(grown, array, *capacity * elem_bytes);
    *capacity = wanted;
    return grown;
}
