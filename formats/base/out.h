/* out.h - the one place that makes outputs: files and folders that appear whole or not at all.
 *
 * A file grows without a name (O_TMPFILE), so that even a kill leaves nothing, and is linked under its final name after fsync;
 * where the file system cannot do that, and for a folder, it grows as ".NAME.aprkit-XXXXXXXXXXXXXXXX" beside the final
 * name, created by this process alone and locked. What a killed run left so is removed by the next run with the same target,
 * and only if it is no longer locked; nothing else that this process has not made is ever emptied or removed.
 *
 * A target is refused before any work begins: one that is an input (by whatever name), a folder that holds an input, a name
 * that would join the files of an input checkpoint, another output of this run, a symbolic link, a device, anything but a
 * regular file (or a folder, for a folder). Without `overwrite` it must not exist, neither now (APR_E_IO) nor at the end; a folder may
 * exist while it is empty.
 *
 * A replaced file keeps its mode and, where that is allowed, its owner. A new one has what the umask leaves, and is never
 * more open than the inputs of this moment. Nothing takes its final name when an input has changed meanwhile.
 *
 * Bytes are appended, or several threads put them at their places at once (formats/base/extent.h). What is appended is checksummed
 * while it is written, on a second thread where there is one; into a file system in memory, several threads copy large pieces.
 * Messages name the final file. */
#ifndef APR_FORMATS_OUT_H
#define APR_FORMATS_OUT_H

#include "formats/base/extent.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct apr_out apr_out;

/* APR_E_USAGE for a target that may not be one, APR_E_IO when it exists and !overwrite, when its folder is missing or
 * cannot be written, or when the disk has not `total_bytes` free (0: not known yet); the sentence says how much is needed. */
apr_status apr_out_open(apr_out **out, const char *path, uint64_t total_bytes, bool overwrite, apr_error *err);
/* For what is made anew again and again (a report, a page): replaces an existing file that is empty or whose first 512 bytes
 * hold `mark`, no other: also none that came while the new one was made. `mark` is needed until then. */
apr_status apr_out_renew(apr_out **out, const char *path, const char *mark, apr_error *err);

/* Appends. When crc is not NULL it is carried on over these bytes (start with 0). */
apr_status apr_out_write(apr_out *out, const void *bytes, size_t n_bytes, uint32_t *crc, apr_error *err);
apr_status apr_out_zeros(apr_out *out, size_t n_bytes, uint32_t *crc, apr_error *err);

/* Overwrites bytes that were appended before (a checksum table known only at the end). */
apr_status apr_out_patch(apr_out *out, uint64_t offset, const void *bytes, size_t n_bytes, apr_error *err);

/* Bytes appended so far. */
uint64_t apr_out_tell(const apr_out *out);

/* Where the next n_bytes will lie, for others to put there; apr_out_pass when they have. Nothing is appended meanwhile. */
apr_extent apr_out_extent(apr_out *out, uint64_t n_bytes);
/* The next n bytes are in the file already: put at their extent, or taken up. */
void apr_out_pass(apr_out *out, uint64_t n_bytes);

/* Reads an output that is complete but has no final name yet, at a path that is good for this call alone. */
typedef apr_status (*apr_out_reader)(const char *path, apr_error *err);
/* The output takes its name only if that can read it; what cannot be read is an error of the program that wrote it. NULL: not asked. */
void apr_out_prove(apr_out *out, apr_out_reader reader);

/* fsync, the final name, fsync of the folder; frees. On failure nothing is left and what was there is untouched. */
apr_status apr_out_finish(apr_out *out, apr_error *err);
/* Leaves nothing; frees. NULL is fine. */
void apr_out_abandon(apr_out *out);

/* --- a folder of files --- */

typedef struct apr_folder apr_folder;

/* Is a file of this name one that the new folder may replace? A folder with anything else in it is refused by that name.
 * Asked until the folder is finished. */
typedef struct apr_folder_rule {
    bool (*may_go)(const void *context, const char *name);
    const void *context;
} apr_folder_rule;

apr_status apr_folder_open(apr_folder **folder, const char *path, uint64_t total_bytes, bool overwrite, apr_folder_rule rule,
                           apr_error *err);
/* A file in it; `name` has no slash. Its apr_out is finished or abandoned before the folder is. */
apr_status apr_folder_file(apr_folder *folder, const char *name, uint64_t total_bytes, apr_out **out, apr_error *err);
void apr_folder_prove(apr_folder *folder, apr_out_reader reader); /* as apr_out_prove */
/* The whole folder takes its final name in one step, in exchange for the old one. Frees; on failure nothing is left. */
apr_status apr_folder_finish(apr_folder *folder, apr_error *err);
void apr_folder_abandon(apr_folder *folder); /* NULL is fine */

/* --- what lies in the folder of an unfinished output (formats/base/resume.h) --- */

struct apr_resume;

/* As apr_out_open, but the file is `data` there, of total_bytes, and stays there until it takes its final name. */
apr_status apr_out_take_up(apr_out **out, const struct apr_resume *from, const char *path, uint64_t total_bytes, bool overwrite,
                           apr_error *err);
/* The same of a folder; files that are in it already are written over. */
apr_status apr_folder_take_up(apr_folder **folder, const struct apr_resume *from, const char *path, bool overwrite, apr_folder_rule rule,
                              apr_error *err);

/* For outputs that come one by one into a folder which stays as it is: can files be written there, now or when it is made?
 * make: makes it where it is missing. */
apr_status apr_folder_ensure(const char *path, bool make, apr_error *err);

/* --- about targets --- */

/* One of the things that a run is going to write. */
typedef struct apr_out_wish {
    const char *path;
    bool is_folder, overwrite;
    const char *mark; /* see apr_out_renew, or NULL */
    bool is_dry;      /* perhaps nothing is written: whether it exists, and who may write there, does not matter */
} apr_out_wish;

/* For the start of a run, before any work: the refusals of all that it will write, also of two that would be one file, by whatever names.
 * They are asked again when each is opened, and at the end. */
apr_status apr_outs_may_be(const apr_out_wish *all, size_t n, apr_error *err);
/* The refusals that need no writing: may this be the target of a run with these inputs? For dry runs. */
apr_status apr_out_may_be(const char *path, bool is_folder, apr_error *err);
/* Is there room on the file system of `path`, a final name in a folder that exists? */
apr_status apr_out_check_disk(const char *path, uint64_t total_bytes, apr_error *err);

/* Removes all that is unfinished. For handlers of signals and for a process that is about to end: async-signal-safe; no
 * output can be opened or finished afterwards. */
void apr_out_remove_unfinished(void);

#endif
