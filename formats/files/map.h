/* map.h - the one place that opens inputs: it maps a regular file read-only and remembers its state.
 *
 * The pages belong to the page cache: a 100 GB model costs no RAM of the process. Anything but a regular file (a FIFO, a device, a folder)
 * is APR_E_IO, without waiting for it. Symbolic links to regular files are followed, because hub caches consist of them.
 *
 * Every mapped file is an input. An output refuses to take the name of an input (formats/files/out.h). Before an output takes its
 * final name, every input must still have the size and the modification time that it had when it was opened. Between apr_inputs_start
 * and apr_inputs_end a file stays an input after its map is closed; a tool works between the two calls. Inputs have owners (inputs.h);
 * those of a tool belong to the process. */
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
    apr_input *input; /* NULL: the bytes do not come from apr_map_open */
} apr_map;

apr_status apr_map_open(apr_map *map, const char *path, apr_error *err);
/* A map of zeros, for bytes that do not exist; reading it takes no memory. */
apr_status apr_map_zeros(apr_map *map, uint64_t n_bytes, apr_error *err);
void apr_map_close(apr_map *map);
/* Closes the map and removes the file from the inputs: for our own files (a cache) that may be replaced. */
void apr_map_forget(apr_map *map);

/* Prefetches pages of a mapped file that are about to be read, in one call instead of many page faults. Best effort: errors show
 * when the bytes are read. Does nothing if p is not in a mapped input. */
void apr_map_prefetch(const void *p, size_t n_bytes);

/* Drops the whole pages in [p, p + n_bytes) from memory and from the page cache, after their last use. They can still be read: the
 * kernel reads them from the file again. Does nothing if p is not in a mapped input. */
void apr_map_drop(const void *p, size_t n_bytes);

/* Copies bytes that may be in a mapped file. It uses pread for those, so their pages need not be mapped and unmapped one by one. If pread
 * fails, the bytes are copied from the mapping; where the owner copies (inputs.h), they become zeros, and the input counts as changed. */
void apr_map_read(void *to, const void *from, size_t n_bytes);

struct apr_input {
    apr_input *next;
    char *path; /* as it was opened */
    struct stat at_open;
    int fd;              /* -1: closed */
    const uint8_t *data; /* NULL: closed, or empty */
    size_t n_bytes;
    bool changed; /* found when it was closed or opened again */
};

void apr_inputs_start(void);
void apr_inputs_end(void);
/* For a check of outputs. false: a file is an input only while it is open; true: as after apr_inputs_start. Returns the previous value. */
bool apr_inputs_keep_closed(bool closed_ones);
/* The list of the owner's inputs, newest first; valid until one is opened or closed. */
const apr_input *apr_inputs(void);

/* APR_E_IO with a message if an input of the owner has changed since it was opened. */
apr_status apr_inputs_check(apr_error *err);

/* The input that is mapped at this address, or NULL. For a SIGBUS handler: async-signal-safe, as long as no thread
 * opens or closes files outside of apr_inputs_start. */
const apr_input *apr_inputs_at(const void *address);

/* Is there a folder? NULL: no. */
bool apr_is_folder(const char *path);

#endif
