/* out.c - an output file: written without a name or under a temporary one, then given its final name. */
#define _GNU_SOURCE /* O_TMPFILE, renameat2, sync_file_range */
#include "formats/base/crc32.h"
#include "formats/files/map.h"
#include "formats/files/out_internal.h"
#include "formats/files/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PARALLEL_BYTES = 256 * 1024, /* below this a second thread costs more than it saves */
    WRITEBACK_BYTES = 32 * 1024 * 1024
};

struct apr_out {
    apr_target target; /* of a file in an unfinished folder: only its path, name, folder and what it replaces */
    bool is_in_folder;
    bool is_kept;                   /* when abandoned: it is in the folder of an unfinished run */
    char temporary[APR_NAME_BYTES]; /* empty: it has no name yet */
    int temporary_folder;           /* the folder of `temporary` if it is not the target's; or -1 */
    int fd;
    apr_out_reader reader; /* see apr_out_verify, or NULL */
    uint64_t n_written;
};

static void free_out(apr_out *out)
{
    if (out->fd >= 0) close(out->fd);
    if (out->temporary_folder >= 0) close(out->temporary_folder);
    apr_target_close(&out->target);
    free(out);
}

/* --- making it --- */

enum { FD_PATH_BYTES = 40 };

/* The path by which linkat names an open file without a name. */
static const char *fd_path(char path[FD_PATH_BYTES], int fd)
{
    snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
    return path;
}

static int open_nameless(int folder, mode_t mode)
{
    char path[FD_PATH_BYTES];
    const int fd = apr_out_test_fallbacks ? -1 : openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, mode);

    if (fd >= 0 && access(fd_path(path, fd), F_OK) != 0) { /* no /proc: it could not be linked */
        close(fd);
        return -1;
    }
    if (fd >= 0) flock(fd, LOCK_EX | LOCK_NB); /* it has a temporary name for a moment in rename_over */
    return fd;
}

static apr_status make_file(apr_out *out, apr_error *err)
{
    const apr_target *const t = &out->target;
    const mode_t mode = t->exists ? 0600 : apr_target_mode(t); /* the replaced file's mode is set at the end */
    bool is_busy = false;

    out->fd = open_nameless(t->folder, mode);
    if (out->fd >= 0) return APR_OK;
    const int error = apr_temporary_make(t->folder, t->name, false, mode, &out->fd, out->temporary, &is_busy);
    if (error == 0) return APR_OK;
    out->fd = -1;
    out->temporary[0] = '\0';
    if (is_busy) return apr_fail(err, APR_E_IO, "%s: is being written by another process; wait for it or choose another name", t->path);
    return apr_fail(err, APR_E_IO, "%s: cannot create: %s", t->path, strerror(error));
}

static apr_status open_out(apr_out **out_ptr, const char *path, uint64_t total_bytes, apr_replace_rule rule, apr_error *err)
{
    *out_ptr = NULL;
    apr_out *const out = calloc(1, sizeof *out);
    if (out == NULL) return apr_no_memory(err, "an output file");
    out->fd = out->temporary_folder = -1;
    apr_status status = apr_target_open(&out->target, path, false, rule, err);
    if (status != APR_OK) {
        free(out);
        return status;
    }
    status = apr_target_check_disk(&out->target, total_bytes, err);
    if (status == APR_OK) status = apr_check_file_limit(path, total_bytes, err);
    if (status == APR_OK) status = make_file(out, err);
    if (status == APR_OK) *out_ptr = out;
    else free_out(out);
    return status;
}

apr_status apr_out_open(apr_out **out, const char *path, uint64_t total_bytes, bool overwrite, apr_error *err)
{
    return open_out(out, path, total_bytes, (apr_replace_rule){.overwrite = overwrite}, err);
}

apr_status apr_out_open_marked(apr_out **out, const char *path, const char *mark, apr_error *err)
{
    return open_out(out, path, 0, (apr_replace_rule){.mark = mark}, err);
}

apr_status apr_out_resume(apr_out **out_ptr, const apr_resume *from, const char *path, uint64_t total_bytes, bool overwrite, apr_error *err)
{
    *out_ptr = NULL;
    apr_out *const out = calloc(1, sizeof *out);
    if (out == NULL) return apr_no_memory(err, "an output file");
    out->fd = out->temporary_folder = -1;
    apr_status status = apr_target_open(&out->target, path, false, (apr_replace_rule){.overwrite = overwrite}, err);
    if (status != APR_OK) {
        free(out);
        return status;
    }
    status = apr_resume_data(from, "", total_bytes, &out->fd, err);
    out->is_kept = true;
    out->temporary_folder = dup(apr_resume_folder(from));
    snprintf(out->temporary, sizeof out->temporary, "data");
    if (status == APR_OK && out->temporary_folder < 0) status = apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (status == APR_OK) *out_ptr = out;
    else free_out(out);
    return status;
}

apr_status apr_out_open_in(apr_out **out_ptr, int folder, const char *name, const char *path, uint64_t total_bytes, bool is_new,
                           const struct stat *keep, apr_error *err)
{
    *out_ptr = NULL;
    APR_TRY(apr_check_file_limit(path, total_bytes, err));
    apr_out *const out = calloc(1, sizeof *out);
    if (out == NULL) return apr_no_memory(err, "an output file");
    out->fd = out->temporary_folder = -1;
    out->is_in_folder = true;
    out->is_kept = !is_new;
    apr_target *const t = &out->target;
    *t = (apr_target){.path = strdup(path), .folder = dup(folder), .exists = keep != NULL};
    if (keep != NULL) t->old = *keep;
    snprintf(t->name, sizeof t->name, "%s", name);
    apr_status status = APR_OK;
    if (t->path == NULL) status = apr_no_memory(err, "a path");
    else if (t->folder < 0 || fstat(t->folder, &t->folder_st) != 0)
        status = apr_fail(err, APR_E_IO, "%s: cannot create: %s", path, strerror(errno));
    if (status == APR_OK) {
        const mode_t mode = t->exists ? 0600 : apr_target_mode(t);
        out->fd = openat(t->folder, name, O_RDWR | O_CREAT | (is_new ? O_EXCL : 0) | O_NOFOLLOW | O_CLOEXEC, mode);
        if (out->fd < 0) status = apr_fail(err, APR_E_IO, "%s: cannot create: %s", path, strerror(errno));
    }
    if (status == APR_OK) *out_ptr = out;
    else free_out(out);
    return status;
}

/* --- its bytes --- */

/* Writes all of the bytes, in as many calls as it takes. 0 or errno. */
static int write_at(int fd, const void *bytes, size_t n_bytes, uint64_t at)
{
    const uint8_t *p = bytes;

    while (n_bytes > 0) {
        const ssize_t n = pwrite(fd, p, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? EIO : errno;
        p += n;
        at += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

/* Asks the kernel to start writing back the bytes between the last two 32 MiB boundaries, if [start, end) crosses one: the final fsync then
 * has little left to do. Does not wait. Pieces in between that other threads have not written yet are left to that fsync. */
static void start_writeback(int fd, uint64_t start, uint64_t end)
{
    const uint64_t from = start / WRITEBACK_BYTES * WRITEBACK_BYTES, to = end / WRITEBACK_BYTES * WRITEBACK_BYTES;
    if (to > from) sync_file_range(fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
}

apr_status apr_extent_put(const apr_extent *extent, uint64_t at, const void *bytes, size_t n_bytes, apr_error *err)
{
    if (at > extent->n_bytes || n_bytes > extent->n_bytes - at)
        return apr_fail(err, APR_E_USAGE, "%s: more bytes than the layout has", extent->path);
    const int error = write_at(extent->fd, bytes, n_bytes, extent->offset + at);
    if (error == EFAULT) APR_TRY(apr_inputs_check(err)); /* the source is a mapped input that was truncated */
    if (error != 0)
        return apr_fail(err, APR_E_IO, "%s: writing failed after %.1f MiB: %s%s", extent->path, (double)(extent->offset + at) / 0x1p20,
                        strerror(error), extent->advice);
    start_writeback(extent->fd, extent->offset + at, extent->offset + at + n_bytes);
    return APR_OK;
}

apr_extent apr_out_extent(apr_out *out, uint64_t n_bytes)
{
    return (apr_extent){.fd = out->fd, .offset = out->n_written, .n_bytes = n_bytes, .path = out->target.path, .advice = ""};
}

apr_status apr_out_write(apr_out *out, const void *bytes, size_t n_bytes, uint32_t *crc, apr_error *err)
{
    const apr_extent next = apr_out_extent(out, n_bytes);
    apr_status status = APR_OK;

    if (crc != NULL && n_bytes >= PARALLEL_BYTES) {
#pragma omp parallel sections num_threads(2)
        {
#pragma omp section
            status = apr_extent_put(&next, 0, bytes, n_bytes, err);
#pragma omp section
            *crc = apr_crc32(*crc, bytes, n_bytes);
        }
    } else {
        if (crc != NULL) *crc = apr_crc32(*crc, bytes, n_bytes);
        status = apr_extent_put(&next, 0, bytes, n_bytes, err);
    }
    if (status == APR_OK) out->n_written += n_bytes;
    return status;
}

apr_status apr_out_zeros(apr_out *out, size_t n_bytes, uint32_t *crc, apr_error *err)
{
    static const uint8_t zeros[4096];

    while (n_bytes > 0) {
        const size_t n = n_bytes < sizeof zeros ? n_bytes : sizeof zeros;
        APR_TRY(apr_out_write(out, zeros, n, crc, err));
        n_bytes -= n;
    }
    return APR_OK;
}

apr_status apr_out_patch(apr_out *out, uint64_t offset, const void *bytes, size_t n_bytes, apr_error *err)
{
    if (offset > out->n_written || n_bytes > out->n_written - offset)
        return apr_fail(err, APR_E_USAGE, "%s: patch outside the file", out->target.path);
    const int error = write_at(out->fd, bytes, n_bytes, offset);
    return error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s: writing failed: %s", out->target.path, strerror(error));
}

void apr_out_advance(apr_out *out, uint64_t n_bytes) { out->n_written += n_bytes; }

uint64_t apr_out_position(const apr_out *out) { return out->n_written; }

/* --- its name --- */

/* The folder that holds the temporary name. */
static int temporary_folder_of(const apr_out *out) { return out->temporary_folder >= 0 ? out->temporary_folder : out->target.folder; }

/* Gives the file its final name without replacing anything. 0 or errno. */
static int link_new(const apr_out *out)
{
    const apr_target *const t = &out->target;
    const int temporary_folder = temporary_folder_of(out);
    char path[FD_PATH_BYTES];

    if (out->temporary[0] == '\0') return linkat(AT_FDCWD, fd_path(path, out->fd), t->folder, t->name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
    if (!apr_out_test_fallbacks && renameat2(temporary_folder, out->temporary, t->folder, t->name, RENAME_NOREPLACE) == 0) return 0;
    if (!apr_out_test_fallbacks && errno != EINVAL && errno != ENOSYS) return errno;
    if (linkat(temporary_folder, out->temporary, t->folder, t->name, 0) == 0)
        return unlinkat(temporary_folder, out->temporary, 0) == 0 ? 0 : errno;
    if (errno == EEXIST) return errno;
    return renameat(temporary_folder, out->temporary, t->folder, t->name) == 0 ? 0 : errno; /* a file system without hard links */
}

/* linkat cannot replace a file, so a file without a name gets a temporary one first. */
static int rename_over(apr_out *out)
{
    const apr_target *const t = &out->target;
    char path[FD_PATH_BYTES];

    if (out->temporary[0] == '\0') {
        const int error = apr_temporary_name(t->folder, t->name, out->temporary);
        if (error != 0) return error;
        if (linkat(AT_FDCWD, fd_path(path, out->fd), t->folder, out->temporary, AT_SYMLINK_FOLLOW) != 0) return errno;
    }
    return renameat(temporary_folder_of(out), out->temporary, t->folder, t->name) == 0 ? 0 : errno;
}

void apr_out_verify(apr_out *out, apr_out_reader reader) { out->reader = reader; }

/* Called with the signals held. */
static apr_status take_final_name(apr_out *out, apr_error *err)
{
    const apr_target *const t = &out->target;

    APR_TRY(apr_target_recheck(t, err));
    int error = link_new(out);
    if (error == EEXIST && t->overwrite) error = rename_over(out);
    if (error == EEXIST) return apr_fail(err, APR_E_IO, "%s: exists by now, made by another program; it is kept", t->path);
    if (error != 0) return apr_fail(err, APR_E_IO, "%s: cannot complete: %s", t->path, strerror(error));
    if (out->temporary[0] != '\0' && !out->is_kept) apr_temporary_done(t->folder, out->temporary);
    out->temporary[0] = '\0';
    return APR_OK;
}

static apr_status complete(apr_out *out, apr_error *err)
{
    const apr_target *const t = &out->target;
    sigset_t before;

    if (t->exists) apr_copy_mode(out->fd, &t->old);
    const bool cut = !out->is_kept || ftruncate(out->fd, (off_t)out->n_written) == 0;
    if (!cut || fsync(out->fd) != 0) return apr_fail(err, APR_E_IO, "%s: cannot complete: %s", t->path, strerror(errno));
    APR_TRY(apr_verify_output(out->reader, out->fd, t->path, err));
    if (out->is_in_folder) return APR_OK;
    apr_signals_hold(&before);
    const apr_status status = take_final_name(out, err);
    apr_signals_release(&before);
    if (status != APR_OK) return status;
    const int error = apr_sync_folder(t->folder);
    return error == 0 ? APR_OK
                      : apr_fail(err, APR_E_IO, "%s: is complete, but its name may not be on the disk: %s", t->path, strerror(error));
}

apr_status apr_out_finish(apr_out *out, apr_error *err)
{
    const apr_status status = complete(out, err);
    if (status == APR_OK) free_out(out);
    else apr_out_abandon(out);
    return status;
}

void apr_out_abandon(apr_out *out)
{
    if (out == NULL) return;
    if (out->is_in_folder && !out->is_kept) unlinkat(out->target.folder, out->target.name, 0);
    else if (out->temporary[0] != '\0' && !out->is_kept) apr_temporary_remove(out->target.folder, out->temporary, -1);
    free_out(out);
}
