/* resume.h - the folder NAME.resume beside an output that several runs make, one after another or side by side, on one host or many.
 *
 *     terms        how many parts, and what is made of what: lines that every run must agree with
 *     lock        byte K - 1 is locked by who makes part K, all of them by who makes or completes the whole
 *     *.journal   one of each run: the tensors whose bytes are on the disk (formats/base/journal.h)
 *     data        the output itself, a file or a folder of files, of its full size from the start
 *     text        what a run keeps besides, as a text that its model wrote: whatever it means is its own
 *     sums        what a run of error feedback has summed up
 *     final       which data took the final name: written just before it does
 *
 * What is right does not hang on locks: every run has a journal of its own, made by O_EXCL; the terms are put in place by link(); and two
 * runs that make the same tensor write the same bytes. So NFS will do, also where it has no locks; where it has them, they keep a second
 * run from doing the same work, and keep its client from writing more of a page than was written.
 *
 * A kill, a signal or an error leaves the folder; nothing but apr_resume_remove empties it, and that only of its own names. */
#ifndef APR_FORMATS_RESUME_H
#define APR_FORMATS_RESUME_H

#include "formats/base/journal.h"

#include <stdbool.h>

typedef struct apr_resume apr_resume;

/* Who comes. */
typedef struct apr_resume_part {
    int part;    /* from 1; 0: the whole */
    int n_parts; /* 0: of as many parts as there are */
} apr_resume_part;

/* target: the final name. Makes the folder where there is none (n_parts > 0), joins it where the terms are the same. APR_E_IO: the target
 * exists (and !overwrite), other terms (with what differs), another process, no folder. APR_E_DAMAGED: a journal. */
apr_status apr_resume_open(apr_resume **resume, const char *target, bool is_folder, bool overwrite, apr_resume_part part, const char *terms,
                           apr_error *err);
void apr_resume_close(apr_resume *resume); /* NULL is fine */

/* The name of the folder, or of what else is kept of an output until it is done: malloc'ed; NULL: no memory. */
char *apr_resume_path_for(const char *target);
const char *apr_resume_path(const apr_resume *resume);
int apr_resume_n_parts(const apr_resume *resume);
const apr_records *apr_resume_records(const apr_resume *resume); /* of all runs until now, sorted */
/* A run before this one gave the output its final name, and was ended before it removed the folder. */
bool apr_resume_is_final(const apr_resume *resume);

/* Opens the file of the data ("" where that is a file) for reading and writing, and with n_bytes > 0 makes it as large: APR_E_IO when the
 * disk has no room. *fd is -1 where there is none and none is made. */
apr_status apr_resume_data(const apr_resume *resume, const char *name, uint64_t n_bytes, int *fd, apr_error *err);
/* Appends to this run's journal, which is on the disk when it returns: what the records tell of must be there before. */
apr_status apr_resume_note(apr_resume *resume, const apr_record *records, size_t n, apr_error *err);

/* A text that replaces the one before, and is on the disk when it returns; the folder is made where there is none, and no terms need be
 * there. It goes with the folder. apr_resume_kept_text: malloc'ed; NULL: there is none. */
apr_status apr_resume_keep_text(const char *target, const char *text, apr_error *err);
char *apr_resume_kept_text(const char *target);

/* The data takes its final name by apr_out_take_up or apr_folder_take_up, after this. */
apr_status apr_resume_set_final(apr_resume *resume, apr_error *err);
void apr_resume_remove(apr_resume *resume);
/* The folder, for taking up. */
int apr_resume_folder(const apr_resume *resume);

#endif
