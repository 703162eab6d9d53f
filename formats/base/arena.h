/* arena.h - memory that is freed together: a model's names, tables and copies live in one arena and go with it.
 *
 * A zeroed apr_arena is empty and may be closed. Allocations are zeroed and aligned to 16 bytes; they live until
 * apr_arena_close. NULL means out of memory, and nothing else. Not thread-safe. */
#ifndef APR_FORMATS_ARENA_H
#define APR_FORMATS_ARENA_H

#include <stddef.h>

typedef struct apr_arena {
    struct apr_arena_chunk *chunks;
    size_t total_bytes; /* asked for so far */
    size_t held_bytes;  /* taken from the heap: whole chunks */
} apr_arena;

void *apr_arena_alloc(apr_arena *arena, size_t n_bytes);
/* n * size with overflow check. */
void *apr_arena_array(apr_arena *arena, size_t n, size_t size);
/* A NUL-terminated copy of n bytes. */
char *apr_arena_copy(apr_arena *arena, const char *text, size_t n);
char *apr_arena_print(apr_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Moves everything in `from` into `arena`; `from` is then empty. */
void apr_arena_adopt(apr_arena *arena, apr_arena *from);
void apr_arena_close(apr_arena *arena);

#endif
