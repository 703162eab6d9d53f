/* resume_data.c - the contents of the resume folder: small files written atomically, the data, this run's journal. */
#define _GNU_SOURCE /* F_OFD_SETLK, fallocate, getrandom */
#include "formats/files/resume_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { MOST_TEXT_BYTES = 1 << 30 }; /* of terms or a journal */

apr_status apr_resume_fail(const apr_resume *r, const char *name, apr_error *err)
{
    return apr_fail(err, apr_errno_status(errno), "%s/%s: %s", r->path, name, strerror(errno));
}

/* --- small files --- */

char *apr_resume_read(int folder, const char *name, size_t *n_bytes)
{
    struct stat st;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int error = fd < 0 || fstat(fd, &st) != 0 ? errno : 0;
    char *text = NULL;
    size_t n = 0;

    if (error == 0 && (!S_ISREG(st.st_mode) || st.st_size > MOST_TEXT_BYTES)) error = EINVAL;
    if (error == 0 && (text = malloc((size_t)st.st_size + 1)) == NULL) error = ENOMEM;
    while (error == 0 && n < (size_t)st.st_size) {
        const ssize_t now = pread(fd, text + n, (size_t)st.st_size - n, (off_t)n);
        if (now == 0) break; /* it was truncated meanwhile */
        if (now > 0) n += (size_t)now;
        else if (errno != EINTR) error = errno;
    }
    if (fd >= 0) close(fd);
    if (error != 0) {
        free(text);
        errno = error;
        return NULL;
    }
    text[n] = '\0';
    *n_bytes = n;
    return text;
}

static int write_text(int fd, const char *text, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        const ssize_t n = write(fd, text + at, n_bytes - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? EIO : errno;
        at += (size_t)n;
    }
    return 0;
}

/* A unique name: "terms.0123456789abcdef". */
static void make_unique_name(char name[APR_NAME_BYTES], const char *stem, const char *ending)
{
    uint64_t random = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    snprintf(name, APR_NAME_BYTES, "%s.%016" PRIx64 "%s", stem, random, ending);
}

/* Gives the temporary file its name. Without hard links, an existing file of that name is replaced. */
static int put_in_place(int folder, const char *temporary, const char *name, bool replace)
{
    if (!replace && !apr_out_test_fallbacks && (linkat(folder, temporary, folder, name, 0) == 0 || errno == EEXIST)) return 0;
    return renameat(folder, temporary, folder, name) == 0 ? 0 : errno;
}

int apr_resume_write(int folder, const char *name, const char *text, bool replace)
{
    char temporary[APR_NAME_BYTES];

    make_unique_name(temporary, name, "");
    const int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    int error = write_text(fd, text, strlen(text));
    if (error == 0 && fsync(fd) != 0) error = errno;
    close(fd);
    if (error == 0) error = put_in_place(folder, temporary, name, replace);
    unlinkat(folder, temporary, 0);
    return error != 0 ? error : apr_sync_folder(folder);
}

void apr_resume_refresh_listing(int folder)
{
    char name[APR_NAME_BYTES];

    make_unique_name(name, "terms", "");
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return;
    close(fd);
    unlinkat(folder, name, 0);
}

int apr_resume_lock(int fd, short type, off_t first, off_t n)
{
    if (apr_out_test_fallbacks) return ENOLCK;
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

/* --- the data --- */

static apr_status reserve_space(int fd, const char *path, uint64_t n_bytes, apr_error *err)
{
    struct stat st;

    APR_TRY(apr_check_file_limit(path, n_bytes, err));
    if (fstat(fd, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (fallocate(fd, 0, 0, (off_t)n_bytes) == 0) return APR_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return apr_fail(err, APR_E_IO, "%s: not enough space for %.1f MiB: %s; free some space and run again", path,
                        (double)n_bytes / 0x1p20, strerror(errno));
    if ((uint64_t)st.st_size < n_bytes && ftruncate(fd, (off_t)n_bytes) != 0)
        return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    return APR_OK;
}

apr_status apr_resume_data(const apr_resume *r, const char *name, uint64_t n_bytes, int *fd, apr_error *err)
{
    char path[APR_NAME_BYTES + 8], full[4096];

    snprintf(path, sizeof path, "data%s%s", *name != '\0' ? "/" : "", name);
    snprintf(full, sizeof full, "%s/%s", r->path, path);
    if (*name != '\0' && n_bytes > 0 && mkdirat(r->folder, "data", r->mode | 0700 | (r->mode & 0444) >> 2) != 0 && errno != EEXIST)
        return apr_fail(err, APR_E_IO, "%s/data: cannot create: %s", r->path, strerror(errno));
    *fd = openat(r->folder, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (n_bytes > 0 ? O_CREAT : 0), r->mode);
    if (*fd < 0 && n_bytes == 0 && errno == ENOENT) return APR_OK;
    if (*fd < 0) return apr_fail(err, APR_E_IO, "%s: %s", full, strerror(errno));
    /* any lock on the file keeps an NFS client from writing back whole pages, parts of which other hosts may have written */
    apr_resume_lock(*fd, F_RDLCK, 0, 1);
    const apr_status status = n_bytes > 0 ? reserve_space(*fd, full, n_bytes, err) : APR_OK;
    if (status != APR_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* --- the journal --- */

static apr_status start_journal(apr_resume *r, apr_error *err)
{
    char stem[64], name[APR_NAME_BYTES], line[APR_JOURNAL_LINE_BYTES];

    snprintf(stem, sizeof stem, "part-%d-of-%d", r->part.part > 0 ? r->part.part : 1, r->part.n_parts);
    make_unique_name(name, stem, ".journal");
    r->journal = openat(r->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0644);
    if (r->journal < 0) return apr_fail(err, APR_E_IO, "%s/%s: cannot create: %s", r->path, name, strerror(errno));
    const size_t n = apr_journal_head(line, r->terms_crc);
    int error = write_text(r->journal, line, n);
    if (error == 0) error = apr_sync_folder(r->folder);
    if (error != 0) {
        r->is_broken = true;
        return apr_fail(err, APR_E_IO, "%s/%s: %s", r->path, name, strerror(error));
    }
    r->n_noted = (off_t)n;
    return APR_OK;
}

apr_status apr_resume_note(apr_resume *r, const apr_record *records, size_t n, apr_error *err)
{
    char line[APR_JOURNAL_LINE_BYTES];
    int error = 0;

    if (r->is_broken) return apr_fail(err, APR_E_IO, "%s: the journal cannot be written", r->path);
    if (r->journal < 0) APR_TRY(start_journal(r, err));
    off_t n_now = r->n_noted;
    for (size_t i = 0; i < n && error == 0; i++) {
        const size_t n_line = apr_journal_line(line, &records[i]);
        error = write_text(r->journal, line, n_line);
        n_now += (off_t)n_line;
    }
    if (error == 0 && fdatasync(r->journal) != 0) error = errno;
    if (error == 0) {
        r->n_noted = n_now;
        return APR_OK;
    }
    r->is_broken = ftruncate(r->journal, r->n_noted) != 0; /* a partial line is allowed only at the end */
    return apr_fail(err, APR_E_IO, "%s: the journal cannot be written: %s; the next run continues from what it has", r->path,
                    strerror(error));
}
