/* map.h - a file as read-only memory. The pages belong to the page cache, not to us: a 100 GB model costs no RAM.
 *
 * A zeroed apr_map may be closed. An empty file maps to data == NULL, n_bytes == 0. */
#ifndef APR_FORMATS_MAP_H
#define APR_FORMATS_MAP_H

#include "formats/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct apr_map {
    const uint8_t *data;
    size_t n_bytes;
} apr_map;

apr_status apr_map_open(apr_map *map, const char *path, apr_error *err);
void apr_map_close(apr_map *map);

#endif
