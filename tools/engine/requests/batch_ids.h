/* batch_ids.h - the ids of requests so far, and the line of each. */
#ifndef APR_TOOLS_BATCH_IDS_H
#define APR_TOOLS_BATCH_IDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct apr_batch_ids {
    struct apr_batch_id *items; /* [capacity] hashed, at most half of them in use */
    size_t n, capacity;
} apr_batch_ids;

/* Adds a line's id, which is copied. Returns 0 if it is new, else the line that has it already; -1: no memory. */
int64_t apr_batch_ids_add(apr_batch_ids *ids, const char *id, int64_t line);
void apr_batch_ids_close(apr_batch_ids *ids); /* also of a zeroed one */

#endif
