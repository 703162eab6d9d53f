/* arena.c - a list of chunks; a large request gets its own chunk. */
#include "formats/base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGNMENT = 16 };

struct apr_arena_chunk {
    struct apr_arena_chunk *next;
    size_t n_used, n_bytes;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

void *apr_arena_alloc(apr_arena *arena, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 2) return NULL;
    const size_t n = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct apr_arena_chunk *chunk = arena->chunks;

    if (chunk == NULL || chunk->n_bytes - chunk->n_used < n) {
        const size_t capacity = n > CHUNK_BYTES ? n : CHUNK_BYTES;
        chunk = calloc(1, sizeof *chunk + capacity);
        if (chunk == NULL) return NULL;
        chunk->n_bytes = capacity;
        arena->held_bytes += sizeof *chunk + capacity;
        if (n > CHUNK_BYTES && arena->chunks != NULL) { /* keep the half-full chunk in front */
            chunk->next = arena->chunks->next;
            arena->chunks->next = chunk;
        } else {
            chunk->next = arena->chunks;
            arena->chunks = chunk;
        }
    }
    void *const p = chunk->bytes + chunk->n_used;
    chunk->n_used += n;
    arena->total_bytes += n;
    return p;
}

void *apr_arena_array(apr_arena *arena, size_t n, size_t size)
{
    size_t n_bytes;
    return __builtin_mul_overflow(n, size, &n_bytes) ? NULL : apr_arena_alloc(arena, n_bytes);
}

char *apr_arena_copy(apr_arena *arena, const char *text, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *const copy = apr_arena_alloc(arena, n + 1);
    if (copy != NULL && n > 0) memcpy(copy, text, n);
    return copy;
}

char *apr_arena_print(apr_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) return NULL;
    char *const text = apr_arena_alloc(arena, (size_t)n + 1);
    if (text == NULL) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

void apr_arena_adopt(apr_arena *arena, apr_arena *from)
{
    struct apr_arena_chunk **last = &arena->chunks;
    while (*last != NULL) last = &(*last)->next;
    *last = from->chunks;
    arena->total_bytes += from->total_bytes;
    arena->held_bytes += from->held_bytes;
    *from = (apr_arena){0};
}

void apr_arena_close(apr_arena *arena)
{
    for (struct apr_arena_chunk *chunk = arena->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *arena = (apr_arena){0};
}
