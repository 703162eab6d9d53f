/* batch_ids.c - a hash table with open addressing, by FNV-1a. */
#include "tools/engine/requests/batch_ids.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct apr_batch_id {
    char *text; /* NULL: empty */
    int64_t line;
};

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text != '\0'; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

/* Where the id is, or would be. */
static struct apr_batch_id *find_slot(const apr_batch_ids *ids, const char *id)
{
    size_t at = (size_t)hash_of(id) & (ids->capacity - 1);
    while (ids->items[at].text != NULL && strcmp(ids->items[at].text, id) != 0) at = (at + 1) & (ids->capacity - 1);
    return &ids->items[at];
}

static bool grow(apr_batch_ids *ids)
{
    if (2 * (ids->n + 1) <= ids->capacity) return true;
    const size_t capacity = ids->capacity > 0 ? 2 * ids->capacity : 64;
    apr_batch_ids more = {.items = calloc(capacity, sizeof *more.items), .n = ids->n, .capacity = capacity};
    if (more.items == NULL) return false;
    for (size_t i = 0; i < ids->capacity; i++)
        if (ids->items[i].text != NULL) *find_slot(&more, ids->items[i].text) = ids->items[i];
    free(ids->items);
    *ids = more;
    return true;
}

int64_t apr_batch_ids_add(apr_batch_ids *ids, const char *id, int64_t line)
{
    if (!grow(ids)) return -1;
    struct apr_batch_id *const at = find_slot(ids, id);
    if (at->text != NULL) return at->line;
    at->text = strdup(id);
    if (at->text == NULL) return -1;
    at->line = line;
    ids->n++;
    return 0;
}

void apr_batch_ids_close(apr_batch_ids *ids)
{
    for (size_t i = 0; i < ids->capacity; i++) free(ids->items[i].text);
    free(ids->items);
    *ids = (apr_batch_ids){0};
}
