/* map.h - the one place that opens inputs: a regular file as read-only memory, and what is known of it.
 *
 * The pages belong to the page cache, not to us: a 100 GB model costs no RAM. What is no regular file (a FIFO, a device, a
 * folder) is APR_E_IO and never waited for; symbolic links to regular files are followed, as caches of hubs are made of them.
 *
 * Every file that is mapped is an input: outputs refuse to take its name (formats/base/out.h), and before an output takes its
 * name all inputs must have kept the size and the time of change that they were opened with. Between apr_inputs_start and
 * apr_inputs_end a file stays an input when its map is closed: a tool works between the two. The table of inputs belongs to
 * the process, as a fault on a page does. */
#ifndef APR_FORMATS_MAP_H
#define APR_FORMATS_MAP_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef struct apr_input apr_input;

/* A zeroed apr_map may be closed. An empty file maps to data == NULL, n_bytes == 0. */
typedef struct apr_map {
    const uint8_t *data;
    size_t n_bytes;
    apr_input *input; /* NULL: bytes that apr_map_open did not make */
} apr_map;

apr_status apr_map_open(apr_map *map, const char *path, apr_error *err);
/* Zeros in the place of bytes that are not there; reading them takes no memory. */
apr_status apr_map_zeros(apr_map *map, uint64_t n_bytes, apr_error *err);
void apr_map_close(apr_map *map);
/* Closes it and takes it out of the inputs: a file of our own (a cache), which may be replaced. */
void apr_map_forget(apr_map *map);

/* Brings the pages of a mapped file in, all at once instead of with a fault for each few: what is about to be read. No promise: what cannot
 * be had is found out by reading it. Nothing where no input is mapped. */
void apr_map_touch(const void *p, size_t n_bytes);

/* Gives the whole pages of a mapped file in [p, p + n_bytes) back, out of the page cache as well: what is not read again here. It can still
 * be read, from the file. Nothing where no input is mapped. */
void apr_map_drop(const void *p, size_t n_bytes);

/* Copies bytes that may lie in a mapped file: those are read from it, so that its pages need not be mapped one by one, nor unmapped
 * behind. What cannot be read is met as it would be in the pages. */
void apr_map_read(void *to, const void *from, size_t n_bytes);

struct apr_input {
    apr_input *next;
    char *path; /* as it was opened */
    struct stat at_open;
    int fd;              /* -1: closed */
    const uint8_t *data; /* NULL: closed, or empty */
    size_t n_bytes;
    bool changed; /* when it was closed, or opened once more */
};

void apr_inputs_start(void);
void apr_inputs_end(void);
/* The inputs, newest first; valid until one is opened or closed. */
const apr_input *apr_inputs(void);

/* APR_E_IO with a sentence when an input is no longer what was opened. */
apr_status apr_inputs_check(apr_error *err);

/* Which input's page lies at this address; NULL: none. For a handler of SIGBUS: async-signal-safe, as long as no thread
 * opens or closes files outside of apr_inputs_start. */
const apr_input *apr_inputs_at(const void *address);

#endif
