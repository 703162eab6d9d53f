/* out.c - the part file, its bytes and its rename. */
#define _GNU_SOURCE /* sync_file_range, fallocate */
#include "formats/out.h"

#include "formats/crc32.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_in_parallel(void) { return 0; }
static int omp_get_max_threads(void) { return 1; }
#endif

enum {
    PARALLEL_BYTES = 256 * 1024,    /* below this a second thread costs more than it gives */
    COPY_BYTES = 1024 * 1024,       /* into a file in memory: from here on several threads copy */
    AHEAD_BYTES = 64 * 1024 * 1024, /* of such a file, allocated before its bytes come */
    REMAP_BYTES = 256 * 1024 * 1024,
    WRITEBACK_BYTES = 32 * 1024 * 1024 /* start writing to the disk this often, so that the fsync at the end has little left */
};

struct apr_out {
    char *path, *part;
    int fd;
    uint64_t n_written, n_flushed, total_bytes;
    bool in_memory;  /* the file system is RAM: one thread writes slower than several copy */
    uint8_t *mapped; /* of such a file: the bytes from mapped_at to total_bytes; NULL: not yet */
    uint64_t mapped_at, n_allocated;
};

/* The folder that `path` lies in, malloc'ed. */
static char *folder_of(const char *path)
{
    const char *const slash = strrchr(path, '/');
    if (slash == NULL) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

apr_status apr_out_check_disk(const char *path, uint64_t total_bytes, apr_error *err)
{
    struct statvfs fs;
    char *const folder = folder_of(path);
    if (folder == NULL) return apr_no_memory(err, "a path");
    const int failed = statvfs(folder, &fs);
    apr_status status = APR_OK;

    if (failed) {
        status = apr_fail(err, APR_E_IO, "%s: cannot write there: %s: %s", path, folder, strerror(errno));
    } else {
        const uint64_t n_free = (uint64_t)fs.f_bavail * fs.f_frsize;
        const double mib = 0x1p20;
        if (n_free < total_bytes)
            status =
                apr_fail(err, APR_E_IO, "%s: the disk is too small: %.1f MiB needed, %.1f MiB free; free some space or write elsewhere",
                         path, (double)total_bytes / mib, (double)n_free / mib);
    }
    free(folder);
    return status;
}

static void free_out(apr_out *out)
{
    if (out->mapped != NULL) munmap(out->mapped, out->total_bytes - out->mapped_at);
    if (out->fd >= 0) close(out->fd);
    free(out->path);
    free(out->part);
    free(out);
}

apr_status apr_out_open(apr_out **out_ptr, const char *path, uint64_t total_bytes, bool overwrite, apr_error *err)
{
    struct stat st;

    *out_ptr = NULL;
    if (!overwrite && lstat(path, &st) == 0) return apr_fail(err, APR_E_IO, "%s: exists already; give --force to replace it", path);
    APR_TRY(apr_out_check_disk(path, total_bytes, err));

    apr_out *const out = calloc(1, sizeof *out);
    if (out == NULL) return apr_no_memory(err, "an output file");
    out->fd = -1;
    out->path = strdup(path);
    const size_t n = strlen(path) + sizeof ".part";
    out->part = malloc(n);
    if (out->path == NULL || out->part == NULL) {
        free_out(out);
        return apr_no_memory(err, "a path");
    }
    snprintf(out->part, n, "%s.part", path);
    out->fd = open(out->part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out->fd < 0) {
        const apr_status status = apr_fail(err, APR_E_IO, "%s: cannot create: %s", out->part, strerror(errno));
        free_out(out);
        return status;
    }
    struct statfs fs;
    out->total_bytes = total_bytes;
    out->in_memory = fstatfs(out->fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
    *out_ptr = out;
    return APR_OK;
}

static int write_all(const apr_out *out, const uint8_t *bytes, size_t n_bytes)
{
    for (uint64_t at = out->n_written; n_bytes > 0;) {
        const ssize_t n = pwrite(out->fd, bytes, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? EIO : errno;
        bytes += n;
        at += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

/* Pages for the file's bytes up to `end`: a full file system is an error here, and no signal later. */
static int allocate_until(apr_out *out, uint64_t end)
{
    if (end <= out->n_allocated) return 0;
    if (fallocate(out->fd, 0, (off_t)out->n_allocated, (off_t)(end - out->n_allocated)) != 0) return errno;
    out->n_allocated = end;
    return 0;
}

/* Maps what is still to come, in place of what is done: pages that stay mapped count as ours. */
static int map_rest(apr_out *out)
{
    const uint64_t start = out->n_written - out->n_written % (uint64_t)sysconf(_SC_PAGESIZE);

    if (out->mapped != NULL) munmap(out->mapped, out->total_bytes - out->mapped_at);
    out->mapped = NULL;
    void *const p = mmap(NULL, out->total_bytes - start, PROT_READ | PROT_WRITE, MAP_SHARED, out->fd, (off_t)start);
    if (p == MAP_FAILED) return errno;
    out->mapped = p;
    out->mapped_at = start;
    return 0;
}

/* write_all for a file in memory: several threads copy, with the checksum of what they copy, while one allocates further on. */
static int copy_all(apr_out *out, const uint8_t *bytes, size_t n_bytes, uint32_t *crc)
{
    enum { COPIERS = 8 };
    const uint64_t end = out->n_written + n_bytes, wanted = end + AHEAD_BYTES;
    const uint64_t ahead = wanted < out->total_bytes ? wanted : out->total_bytes, step = out->n_allocated + 2 * n_bytes;
    const size_t slice = n_bytes / COPIERS + 1;
    uint32_t crcs[COPIERS];
    size_t sizes[COPIERS];
    int error = 0, ahead_error = 0;

    if (out->mapped == NULL || out->n_written - out->mapped_at > REMAP_BYTES) error = map_rest(out);
    if (error == 0) error = allocate_until(out, end);
    if (error != 0) return error;
    uint8_t *const to = out->mapped + (out->n_written - out->mapped_at);
#pragma omp parallel for num_threads(COPIERS + 1) schedule(dynamic)
    for (int i = -1; i < COPIERS; i++) {
        if (i < 0) {
            ahead_error = allocate_until(out, step < ahead ? step : ahead);
            continue;
        }
        const size_t first = (size_t)i * slice;
        sizes[i] = first >= n_bytes ? 0 : n_bytes - first < slice ? n_bytes - first : slice;
        if (sizes[i] == 0) continue;
        memcpy(to + first, bytes + first, sizes[i]);
        if (crc != NULL) crcs[i] = apr_crc32(0, bytes + first, sizes[i]);
    }
    for (int i = 0; i < COPIERS && crc != NULL; i++)
        if (sizes[i] > 0) *crc = apr_crc32_combine(*crc, crcs[i], sizes[i]);
    return ahead_error;
}

/* Asks the kernel to start writing back what is complete, without waiting for it. */
static void start_writeback(apr_out *out)
{
    if (out->n_written - out->n_flushed < WRITEBACK_BYTES) return;
    sync_file_range(out->fd, (off_t)out->n_flushed, (off_t)(out->n_written - out->n_flushed), SYNC_FILE_RANGE_WRITE);
    out->n_flushed = out->n_written;
}

apr_status apr_out_write(apr_out *out, const void *bytes, size_t n_bytes, uint32_t *crc, apr_error *err)
{
    int error = 0;

    const bool expected = n_bytes <= out->total_bytes && out->n_written <= out->total_bytes - n_bytes;
    if (out->in_memory && expected && n_bytes >= COPY_BYTES && !omp_in_parallel() && omp_get_max_threads() > 2) {
        error = copy_all(out, bytes, n_bytes, crc);
    } else if (crc != NULL && n_bytes >= PARALLEL_BYTES) {
#pragma omp parallel sections num_threads(2)
        {
#pragma omp section
            error = write_all(out, bytes, n_bytes);
#pragma omp section
            *crc = apr_crc32(*crc, bytes, n_bytes);
        }
    } else {
        if (crc != NULL) *crc = apr_crc32(*crc, bytes, n_bytes);
        error = write_all(out, bytes, n_bytes);
    }
    if (error != 0)
        return apr_fail(err, APR_E_IO, "%s: writing failed after %.1f MiB: %s", out->path, (double)out->n_written / 0x1p20,
                        strerror(error));
    out->n_written += n_bytes;
    start_writeback(out);
    return APR_OK;
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
    const uint8_t *p = bytes;

    if (offset > out->n_written || n_bytes > out->n_written - offset)
        return apr_fail(err, APR_E_USAGE, "%s: patch outside the file", out->path);
    while (n_bytes > 0) {
        const ssize_t n = pwrite(out->fd, p, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return apr_fail(err, APR_E_IO, "%s: writing failed: %s", out->path, strerror(n == 0 ? EIO : errno));
        p += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return APR_OK;
}

uint64_t apr_out_tell(const apr_out *out) { return out->n_written; }

/* Makes the new name survive a power cut too. Not every file system can: a failure here is none. */
static void sync_folder(const char *path)
{
    char *const folder = folder_of(path);
    const int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

apr_status apr_out_finish(apr_out *out, apr_error *err)
{
    const bool cut = out->n_allocated <= out->n_written || ftruncate(out->fd, (off_t)out->n_written) == 0;
    if (!cut || fsync(out->fd) != 0 || rename(out->part, out->path) != 0) {
        const apr_status status = apr_fail(err, APR_E_IO, "%s: cannot complete: %s", out->path, strerror(errno));
        apr_out_abandon(out);
        return status;
    }
    sync_folder(out->path);
    free_out(out);
    return APR_OK;
}

void apr_out_abandon(apr_out *out)
{
    if (out == NULL) return;
    unlink(out->part);
    free_out(out);
}
