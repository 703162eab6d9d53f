/* resume_internal.h - shared by resume.c and resume_data.c: the open folder, and small files in it. */
#ifndef APR_FORMATS_RESUME_INTERNAL_H
#define APR_FORMATS_RESUME_INTERNAL_H

#include "formats/files/out_internal.h"
#include "formats/files/resume.h"

/* The file of apr_resume_keep_text. */
#define APR_RESUME_TEXT "text"
/* The sums of an error feedback run (tools/engine/quantize/kept_sums.h). */
#define APR_RESUME_SUMS "sums"

struct apr_resume {
    apr_target target; /* of the final name; only while it is opened */
    apr_resume_part part;
    char *path, name[APR_NAME_BYTES]; /* the name in the folder `parent` */
    mode_t mode;                      /* of new files */
    int parent, folder, lock, journal;
    uint32_t terms_crc;
    off_t n_noted; /* bytes of this run's journal that are whole lines */
    bool is_broken, is_final;
    apr_records records;
};

/* Fails with "FOLDER/NAME: " and the text of errno. */
apr_status apr_resume_fail(const apr_resume *resume, const char *name, apr_error *err);

/* Reads a small file: malloc'ed and NUL-terminated; NULL and errno on failure. */
char *apr_resume_read(int folder, const char *name, size_t *n_bytes);
/* Writes a file of that name atomically and syncs it; 0 or errno. replace: also replaces an older one, which otherwise stays. */
int apr_resume_write(int folder, const char *name, const char *text, bool replace);

/* Changes the folder, so that it is listed again: NFS may otherwise show a listing some seconds old, without other hosts' journals. */
void apr_resume_refresh_listing(int folder);

/* Locks bytes [first, first + n); n 0: to the end. 0 or errno. The lock belongs to the open file, so it ends with the process. */
int apr_resume_lock(int fd, short type, off_t first, off_t n);

#endif
