/* out.h - the one place that makes outputs: files and folders that appear whole or not at all.
 *
 * A file is written without a name (O_TMPFILE), so a kill leaves nothing. It is linked under its final name after fsync. Where the
 * file system cannot do that, and for a folder, it is written as ".NAME.aprkit-XXXXXXXXXXXXXXXX" next to the final name, and locked.
 * If a run is killed, the next run with the same target removes that temporary, but only if it is no longer locked. Nothing else
 * that this process has not made is ever emptied or removed.
 *
 * A target is refused before any work begins if it is an input (by whatever name), a folder that holds an input, a name
 * that would join the files of an input checkpoint, another output of this run, a symbolic link, a device, or anything but a
 * regular file (or a folder, for a folder). Without `overwrite` it must not exist, neither now (APR_E_IO) nor at the end; an empty
 * folder may exist.
 *
 * A replaced file keeps its mode and, where that is allowed, its owner. A new file gets the mode that the umask leaves, and is never
 * more open than the current inputs. Nothing takes its final name if an input has changed.
 *
 * Bytes are either appended, or several threads write them at their offsets (apr_extent). Appended bytes are checksummed
 * while they are written, on a second thread where there is one. Messages name the final file. */
#ifndef APR_FORMATS_OUT_H
#define APR_FORMATS_OUT_H

#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_out apr_out;

/* APR_E_USAGE for a target that is not allowed. APR_E_IO if it exists and !overwrite, if its folder is missing or
 * not writable, or if the disk has less than `total_bytes` free (0: not known yet); the message says how much is needed. */
apr_status apr_out_open(apr_out **out, const char *path, uint64_t total_bytes, bool overwrite, apr_error *err);
/* For files that are made again and again (a report, a page): replaces an existing file only if it is empty or its first 512 bytes
 * contain `mark`. The check is repeated at the end. The caller keeps `mark` until then. */
apr_status apr_out_open_marked(apr_out **out, const char *path, const char *mark, apr_error *err);

/* Appends. If crc is not NULL, it is updated with these bytes (start with 0). */
apr_status apr_out_write(apr_out *out, const void *bytes, size_t n_bytes, uint32_t *crc, apr_error *err);
apr_status apr_out_zeros(apr_out *out, size_t n_bytes, uint32_t *crc, apr_error *err);

/* Overwrites bytes that were appended before, such as a checksum table that is known only at the end. */
apr_status apr_out_patch(apr_out *out, uint64_t offset, const void *bytes, size_t n_bytes, apr_error *err);

/* Bytes appended so far. */
uint64_t apr_out_position(const apr_out *out);

/* A byte range of an unfinished file. Several threads write pieces of it at once and in any order. The file stays its owner's: put nothing
 * after it was finished or abandoned. The bytes are not checked again; when all of them are written, tell the owner (apr_out_advance). */
typedef struct apr_extent {
    int fd;
    uint64_t offset, n_bytes;
    const char *path;   /* of the file, for messages */
    const char *advice; /* appended to error messages: "; ..." or "" */
    bool wants_crc;     /* the owner needs the CRC-32 of the whole extent */
} apr_extent;

/* Writes bytes [at, at + n_bytes) of the extent. APR_E_USAGE past its end. Any number of threads at once. */
apr_status apr_extent_put(const apr_extent *extent, uint64_t at, const void *bytes, size_t n_bytes, apr_error *err);

/* The byte range of the next n_bytes, for other threads to write. Call apr_out_advance when they have. Append nothing in between. */
apr_extent apr_out_extent(apr_out *out, uint64_t n_bytes);
/* Skips the next n bytes, which are in the file already: written through their extent, or by an earlier run. */
void apr_out_advance(apr_out *out, uint64_t n_bytes);

/* Reads a complete output that has no final name yet; `path` is valid during this call only. */
typedef apr_status (*apr_out_reader)(const char *path, apr_error *err);
/* The output takes its name only if the reader can read it. A failure means a bug of the writer. NULL: no check. */
void apr_out_verify(apr_out *out, apr_out_reader reader);

/* fsync, link to the final name, fsync of the folder; frees. On failure nothing is left, and an existing file is untouched. */
apr_status apr_out_finish(apr_out *out, apr_error *err);
/* Removes what was written; frees. NULL is fine. */
void apr_out_abandon(apr_out *out);

/* --- a folder of files --- */

typedef struct apr_folder apr_folder;

/* May the new folder replace a file of this name? If the old folder has any other file, it is not replaced; the message names that file.
 * Called until the folder is finished. */
typedef struct apr_folder_rule {
    bool (*may_go)(const void *context, const char *name);
    const void *context;
} apr_folder_rule;

apr_status apr_folder_open(apr_folder **folder, const char *path, uint64_t total_bytes, bool overwrite, apr_folder_rule rule,
                           apr_error *err);
/* Opens a file in the folder; `name` has no slash. Finish or abandon its apr_out before the folder. */
apr_status apr_folder_file(apr_folder *folder, const char *name, uint64_t total_bytes, apr_out **out, apr_error *err);
void apr_folder_verify(apr_folder *folder, apr_out_reader reader); /* as apr_out_verify */
/* Gives the whole folder its final name in one step, in exchange for the old one. Frees; on failure nothing is left. */
apr_status apr_folder_finish(apr_folder *folder, apr_error *err);
void apr_folder_abandon(apr_folder *folder); /* NULL is fine */

/* --- outputs that continue in the folder of an unfinished run (formats/files/resume.h) --- */

struct apr_resume;

/* As apr_out_open, but continues the file `data` of that folder, of total_bytes. It stays there until it takes its final name. */
apr_status apr_out_resume(apr_out **out, const struct apr_resume *from, const char *path, uint64_t total_bytes, bool overwrite,
                          apr_error *err);
/* The same for a folder; files that exist in it are overwritten. */
apr_status apr_folder_resume(apr_folder **folder, const struct apr_resume *from, const char *path, bool overwrite, apr_folder_rule rule,
                             apr_error *err);

/* For outputs that are written one by one into a folder that is kept: can files be written there, now or after it is made?
 * make: creates the folder if it is missing. */
apr_status apr_folder_ensure(const char *path, bool make, apr_error *err);

/* --- about targets --- */

/* One output that a run is going to write. */
typedef struct apr_out_request {
    const char *path;
    bool is_folder, overwrite;
    const char *mark; /* see apr_out_open_marked, or NULL */
    bool is_dry;      /* a dry run: do not check whether it exists or can be written */
} apr_out_request;

/* Checks all outputs of a run before any work, also that no two of them are the same file by whatever names. Each is checked again
 * when it is opened, and at the end. */
apr_status apr_outs_check(const apr_out_request *all, size_t n, apr_error *err);
/* Checks one target against this run's inputs, without writing. For dry runs. */
apr_status apr_out_check(const char *path, bool is_folder, apr_error *err);
/* Has the file system of `path` enough free space? `path` is a final name in a folder that exists. */
apr_status apr_out_check_disk(const char *path, uint64_t total_bytes, apr_error *err);

/* Removes all unfinished outputs. For signal handlers and for a process that is about to end: async-signal-safe; no
 * output can be opened or finished afterwards. */
void apr_out_remove_unfinished(void);

#endif
