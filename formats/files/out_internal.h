/* out_internal.h - shared by out*.c: targets (a final name and what exists there) and temporaries. */
#ifndef APR_FORMATS_OUT_INTERNAL_H
#define APR_FORMATS_OUT_INTERNAL_H

#include "formats/files/out.h"

#include <signal.h>
#include <sys/stat.h>

enum { APR_NAME_BYTES = 256 }; /* the longest file name and its NUL */

/* Where an output goes. The name is relative to the descriptor of its folder, so renaming a folder above does not matter. */
typedef struct apr_target apr_target;
struct apr_target {
    char *path; /* as the caller gave it */
    int folder; /* O_PATH */
    struct stat folder_st;
    char name[APR_NAME_BYTES];
    bool is_folder, overwrite, exists;
    bool is_empty;    /* an existing folder without entries: it may be filled */
    const char *mark; /* of apr_replace_rule */
    struct stat old;  /* when it exists */
    apr_target *next; /* in the list of open targets */
};

typedef struct apr_replace_rule {
    bool overwrite;
    const char *mark; /* see apr_out_open_marked, or NULL */
    bool is_dry;      /* see apr_out_request */
} apr_replace_rule;

/* Makes all checks of out.h; a failed open needs no close. */
apr_status apr_target_open(apr_target *target, const char *path, bool is_folder, apr_replace_rule rule, apr_error *err);
void apr_target_close(apr_target *target);
/* Repeats all checks at the end of the work, and checks that no input has changed. */
apr_status apr_target_recheck(const apr_target *target, apr_error *err);
apr_status apr_check_file_limit(const char *path, uint64_t total_bytes, apr_error *err); /* ulimit -f */
apr_status apr_target_check_disk(const apr_target *target, uint64_t total_bytes, apr_error *err);
/* The mode for a new file or folder, before the umask. */
mode_t apr_target_mode(const apr_target *target);
/* Gives fd the mode and the owner of the file that it replaces. */
void apr_copy_mode(int fd, const struct stat *old);
/* Syncs a folder's entries to the disk. 0, or the errno of a disk fault (EIO, ENOSPC, EDQUOT). File systems that cannot sync a folder, and
 * folders that cannot be opened for it, give 0. */
int apr_sync_folder(int folder);

/* Opens a file of an unfinished folder: `folder` is its descriptor, `name` the name in it. apr_out_finish and apr_out_abandon then
 * act on that name. keep: the stat of the same file in the folder that is replaced, or NULL. is_new: the name does not exist yet;
 * otherwise the file is overwritten and truncated to what was written. */
apr_status apr_out_open_in(apr_out **out, int folder, const char *name, const char *path, uint64_t total_bytes, bool is_new,
                           const struct stat *keep, apr_error *err);

/* Reads the file or folder of the descriptor with `reader`; messages name the final path. */
apr_status apr_verify_output(apr_out_reader reader, int fd, const char *path, apr_error *err);

/* For tests: act as on a file system without O_TMPFILE, RENAME_EXCHANGE, hard links and locks. */
extern bool apr_out_test_fallbacks;

/* --- temporaries --- */

/* While a thread holds the signals, no handler removes the temporary that it is making or renaming. */
void apr_signals_hold(sigset_t *before);
void apr_signals_release(const sigset_t *before);

/* Makes ".NAME.aprkit-XXXX" in `folder`: a file (*fd is open for reading and writing) or a folder (*fd is open for reading). It is locked
 * and registered for apr_out_remove_unfinished. First removes what killed runs left for this name. *is_busy: another process
 * is writing this target now, and nothing is made. 0 or errno. */
int apr_temporary_make(int folder, const char *name, bool is_folder, mode_t mode, int *fd, char temporary[APR_NAME_BYTES], bool *is_busy);
/* Only invents and registers a name, for a file that is linked there later. */
int apr_temporary_name(int folder, const char *name, char temporary[APR_NAME_BYTES]);
/* Unregisters a temporary that was renamed or removed. */
void apr_temporary_done(int folder, const char *temporary);
/* Removes a temporary file, or a folder with the files in it. opened: the open folder, in case no descriptor is left to open it again; or -1. */
void apr_temporary_remove(int folder, const char *temporary, int opened);

#endif
