/* batch_ids.h - the ids that requests have had, and in which line. */
#ifndef APR_TOOLS_BATCH_IDS_H
#define APR_TOOLS_BATCH_IDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct apr_batch_ids {
    struct apr_batch_id *items; /* [capacity] hashed, at most half of them in use */
    size_t n, capacity;
} apr_batch_ids;

/* 0: it is new, and the line's from now on; else the line that had it before; -1: no memory. Copies the id. */
int64_t apr_batch_ids_add(apr_batch_ids *ids, const char *id, int64_t line);
void apr_batch_ids_close(apr_batch_ids *ids); /* of a zeroed one, too */

#endif
