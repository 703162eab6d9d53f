/* out.h - a file that appears whole or not at all: NAME.part, then fsync, then rename.
 *
 * Bytes are checksummed while they are written, on a second thread where there is one; into a file system in memory, several
 * threads copy large pieces. Messages name the final file. */
#ifndef APR_FORMATS_OUT_H
#define APR_FORMATS_OUT_H

#include "formats/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_out apr_out;

/* Creates NAME.part (replacing a stale one). APR_E_IO when `path` exists and !overwrite, when the folder is missing, or
 * when the disk has not `total_bytes` free; the sentence says how much is needed and how much there is. */
apr_status apr_out_open(apr_out **out, const char *path, uint64_t total_bytes, bool overwrite, apr_error *err);

/* Appends. When crc is not NULL it is carried on over these bytes (start with 0). */
apr_status apr_out_write(apr_out *out, const void *bytes, size_t n_bytes, uint32_t *crc, apr_error *err);
apr_status apr_out_zeros(apr_out *out, size_t n_bytes, uint32_t *crc, apr_error *err);

/* Overwrites bytes that were appended before (a checksum table known only at the end). */
apr_status apr_out_patch(apr_out *out, uint64_t offset, const void *bytes, size_t n_bytes, apr_error *err);

/* Bytes appended so far. */
uint64_t apr_out_tell(const apr_out *out);

/* fsync, rename, fsync of the folder; frees. On failure the part file is removed. */
apr_status apr_out_finish(apr_out *out, apr_error *err);
/* Removes the part file; frees. NULL is fine. */
void apr_out_abandon(apr_out *out);

/* The disk check on its own, for a directory of files: `path` is the final name, its folder must exist. */
apr_status apr_out_check_disk(const char *path, uint64_t total_bytes, apr_error *err);

#endif
