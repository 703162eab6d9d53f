/* inputs.h - owners of inputs, and copies of mapped bytes for programs that may not handle signals.
 *
 * If another program truncates a mapped file, reading its last pages raises SIGBUS. A tool has a handler for that, which ends it with a
 * message. A library may not have one: it opens its inputs with an owner that copies. Then the bytes that are about to be used are copied
 * with pread to private memory at the same addresses, and a failed read is an error. What is read elsewhere is still read from the mapping. */
#ifndef APR_FORMATS_INPUTS_H
#define APR_FORMATS_INPUTS_H

#include "formats/files/map.h"

/* Inputs belong to the task that opened them: all inputs of a tool to one owner, those of each context of a library to its own. An owner is
 * used by one thread at a time. Zeroed: no inputs, nothing is copied. */
typedef struct apr_input_owner {
    apr_input *first;
    bool keeps_closed;
    bool copies;
} apr_input_owner;

/* Sets the owner of what the calling thread opens, checks and lists from now on; NULL: the process. Returns the previous one. */
apr_input_owner *apr_inputs_own(apr_input_owner *owner);
/* Is the calling thread's owner between apr_inputs_start and apr_inputs_end? */
bool apr_inputs_are_kept(void);

/* For owners that copy; for others, and for other memory, these do nothing.
 *
 * apr_map_load copies the pages of [p, p + n_bytes) to private memory, at the same addresses. APR_E_IO: the file was cut short, or cannot be
 * read. apr_map_unload maps the file there again. Other threads may read these bytes meanwhile. Both leave pages alone that are kept:
 * apr_map_open keeps a file of at most APR_KEPT_FILE bytes, and the first APR_KEPT_HEAD bytes of a larger one until apr_map_keep says how
 * many bytes from the start are kept until the map is closed. */
enum { APR_KEPT_FILE = 64 << 20, APR_KEPT_HEAD = 8 << 20 };
apr_status apr_map_load(const void *p, size_t n_bytes, apr_error *err);
void apr_map_unload(const void *p, size_t n_bytes);
apr_status apr_map_keep(const apr_map *map, size_t n_bytes, apr_error *err);

/* Continues a CRC-32 over bytes that may be in a mapped file, read as by apr_map_read. */
uint32_t apr_map_crc32(uint32_t crc, const void *p, size_t n_bytes);

#endif
