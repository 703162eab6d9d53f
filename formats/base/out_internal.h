/* out_internal.h - what out.c and out_folder.c are made of: targets (a final name, and what lies there) and temporaries. */
#ifndef APR_FORMATS_OUT_INTERNAL_H
#define APR_FORMATS_OUT_INTERNAL_H

#include "formats/base/out.h"

#include <signal.h>
#include <sys/stat.h>

enum { APR_NAME_BYTES = 256 }; /* the longest name of a file, and its NUL */

/* Where an output is to go. Names are relative to the descriptor of their folder, so that nothing depends on what becomes of
 * the folders above. */
typedef struct apr_target apr_target;
struct apr_target {
    char *path; /* as it was asked for */
    int folder; /* O_PATH */
    struct stat folder_st;
    char name[APR_NAME_BYTES];
    bool is_folder, overwrite, exists;
    bool is_empty;    /* a folder that exists with nothing in it: it may be filled */
    const char *mark; /* of apr_replace_rule */
    struct stat old;  /* when it exists */
    apr_target *next; /* of those that are open */
};

typedef struct apr_replace_rule {
    bool overwrite;
    const char *mark; /* see apr_out_renew, or NULL */
    bool is_dry;      /* see apr_out_wish */
} apr_replace_rule;

/* All refusals; a failed open needs no close. */
apr_status apr_target_open(apr_target *target, const char *path, bool is_folder, apr_replace_rule rule, apr_error *err);
void apr_target_close(apr_target *target);
/* All refusals once more, at the end of the work, and of inputs that have changed. */
apr_status apr_target_recheck(const apr_target *target, apr_error *err);
apr_status apr_check_file_limit(const char *path, uint64_t total_bytes, apr_error *err); /* ulimit -f */
apr_status apr_target_check_disk(const apr_target *target, uint64_t total_bytes, apr_error *err);
/* Permissions to create it with when it is new; the umask is still to come. */
mode_t apr_target_mode(const apr_target *target);
/* Those and the owner of the one that is replaced. */
void apr_keep_mode(int fd, const struct stat *old);
/* Brings a folder's names to the disk. 0, or the errno of a disk with a fault (EIO, ENOSPC, EDQUOT). Not every file system can do it, and not
 * every folder can be opened for it: that is 0. apr_sync_names: of a descriptor that is not O_PATH. */
int apr_sync_folder(int folder);
int apr_sync_names(int fd);

/* What apr_out_finish and apr_out_abandon do for a file of an unfinished folder, whose descriptor and name in it these are.
 * keep: the file of that name in the folder that is replaced, or NULL. */
/* is_new: there is none of that name yet; otherwise it is written over, and cut to what was written. */
apr_status apr_out_open_in(apr_out **out, int folder, const char *name, const char *path, uint64_t total_bytes, bool is_new,
                           const struct stat *keep, apr_error *err);

/* Asks the reader for what lies behind a descriptor, and says of the final path what it does not read. */
apr_status apr_prove(apr_out_reader reader, int fd, const char *path, apr_error *err);
/* In map.c. false: from now on a file is an input only while it is open; true: as apr_inputs_start. Says what was the case before. */
bool apr_inputs_keep(bool closed_ones);

/* For tests: as on a file system that knows neither files without names nor exchanges of names, nor hard links and locks of
 * unfinished outputs. */
extern bool apr_out_is_poor;

/* --- temporaries --- */

/* While a thread holds the signals, no handler removes what it is making or putting in place. */
void apr_signals_hold(sigset_t *before);
void apr_signals_release(const sigset_t *before);

/* Makes ".NAME.aprkit-XXXX" in `folder`: a file (then *fd is open for reading and writing) or a folder (*fd reads it), locked
 * and known to apr_out_remove_unfinished. First removes what killed runs left for this name; *is_busy says that another
 * process is making it just now (nothing is made then). 0 or errno. */
int apr_temporary_make(int folder, const char *name, bool is_folder, mode_t mode, int *fd, char temporary[APR_NAME_BYTES], bool *is_busy);
/* A name for one that is to be linked, known in the same way. */
int apr_temporary_name(int folder, const char *name, char temporary[APR_NAME_BYTES]);
/* It has another name by now, or is gone. */
void apr_temporary_done(int folder, const char *temporary);
/* Removes it, a folder with the files in it. */
void apr_temporary_remove(int folder, const char *temporary);
/* Removes the files of an open folder: for when no descriptor is left to open it again. */
void apr_temporary_empty(int fd);

#endif
