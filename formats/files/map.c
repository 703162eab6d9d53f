/* map.c - opens, maps and remembers inputs. The descriptor stays open: it identifies the opened file even if its name changes. */
#define _DEFAULT_SOURCE /* madvise */
#include "formats/files/map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* since Linux 5.14; on older kernels the call fails, harmlessly */
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static apr_input *_Atomic first; /* atomic, because the signal handler takes no lock */
static bool keeps_closed;

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a device"
                            : "something else";
}

static bool is_same_version(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool has_changed(const apr_input *input)
{
    struct stat now;
    if (input->changed || input->fd < 0) return input->changed;
    return fstat(input->fd, &now) == 0 && !is_same_version(&now, &input->at_open);
}

static void free_input(apr_input *input)
{
    if (input->fd >= 0) close(input->fd);
    free(input->path);
    free(input);
}

/* Checks the type before opening, because opening some devices has side effects, and after it, because the name may have changed. */
static apr_status open_regular(apr_input *input, const char *path, apr_error *err)
{
    struct stat st;

    if (stat(path, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (S_ISREG(st.st_mode)) {
        input->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (input->fd < 0 || fstat(input->fd, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
        input->at_open = st;
    }
    if (!S_ISREG(st.st_mode)) return apr_fail(err, APR_E_IO, "%s: is %s, not a regular file", path, kind_of(st.st_mode));
    return APR_OK;
}

static apr_status map_pages(apr_input *input, const char *path, apr_error *err)
{
    const size_t n_bytes = (size_t)input->at_open.st_size;

    if (n_bytes == 0) return APR_OK;
    void *const p = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, input->fd, 0);
    if (p == MAP_FAILED) return apr_fail(err, apr_errno_status(errno), "%s: cannot map %zu bytes: %s", path, n_bytes, strerror(errno));
    input->data = p;
    input->n_bytes = n_bytes;
    return APR_OK;
}

apr_status apr_map_open(apr_map *map, const char *path, apr_error *err)
{
    *map = (apr_map){0};
    apr_input *const input = calloc(1, sizeof *input);
    if (input == NULL) return apr_no_memory(err, "a file");
    input->fd = -1;
    input->path = strdup(path);
    apr_status status = input->path != NULL ? open_regular(input, path, err) : apr_no_memory(err, "a path");
    if (status == APR_OK) status = map_pages(input, path, err);
    if (status != APR_OK) {
        free_input(input);
        return status;
    }
    *map = (apr_map){input->data, input->n_bytes, input};
    pthread_mutex_lock(&lock);
    for (apr_input *at = first; at != NULL; at = at->next) /* opened earlier, and changed since */
        if (strcmp(at->path, path) == 0 && !is_same_version(&at->at_open, &input->at_open)) at->changed = true;
    input->next = first;
    first = input;
    pthread_mutex_unlock(&lock);
    return APR_OK;
}

apr_status apr_map_zeros(apr_map *map, uint64_t n_bytes, apr_error *err)
{
    *map = (apr_map){0};
    if (n_bytes == 0) return APR_OK;
    apr_input *const input = calloc(1, sizeof *input);
    if (input == NULL) return apr_no_memory(err, "a file");
    void *const p =
        n_bytes <= SIZE_MAX ? mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;
    input->path = strdup("");
    if (input->path == NULL || p == MAP_FAILED) {
        if (p != MAP_FAILED) munmap(p, (size_t)n_bytes);
        free(input->path);
        free(input);
        return apr_fail(err, APR_E_MEMORY, "not enough memory for %llu bytes of zeros", (unsigned long long)n_bytes);
    }
    input->fd = -1;
    input->data = p;
    input->n_bytes = (size_t)n_bytes;
    *map = (apr_map){p, (size_t)n_bytes, input};
    pthread_mutex_lock(&lock);
    input->next = first;
    first = input;
    pthread_mutex_unlock(&lock);
    return APR_OK;
}

static void remove_input(apr_input *input)
{
    pthread_mutex_lock(&lock);
    if (first == input) {
        first = input->next;
    } else {
        apr_input *at = first;
        while (at->next != input) at = at->next;
        at->next = input->next;
    }
    pthread_mutex_unlock(&lock);
    free_input(input);
}

static void close_map(apr_map *map, bool keep)
{
    apr_input *const input = map->input;

    if (input != NULL) {
        input->changed = has_changed(input);
        input->data = NULL;
        if (map->data != NULL) munmap((void *)(uintptr_t)map->data, map->n_bytes);
        if (input->fd >= 0) close(input->fd);
        input->fd = -1;
        if (!keep) remove_input(input);
    }
    *map = (apr_map){0};
}

void apr_map_close(apr_map *map) { close_map(map, keeps_closed); }
void apr_map_forget(apr_map *map) { close_map(map, false); }

const apr_input *apr_inputs(void) { return first; }

bool apr_inputs_keep_closed(bool closed_ones)
{
    const bool before = keeps_closed;
    keeps_closed = closed_ones;
    return before;
}

void apr_inputs_start(void) { keeps_closed = true; }

void apr_inputs_end(void)
{
    keeps_closed = false;
    for (apr_input *at = first, *next; at != NULL; at = next) {
        next = at->next;
        if (at->fd < 0) remove_input(at);
    }
}

apr_status apr_inputs_check(apr_error *err)
{
    for (const apr_input *at = first; at != NULL; at = at->next)
        if (has_changed(at))
            return apr_fail(err, APR_E_IO, "%s: was changed by another program while it was being read; start again when it is complete",
                            at->path);
    return APR_OK;
}

void apr_map_prefetch(const void *p, size_t n_bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p / page * page;
    if (n_bytes > 0 && apr_inputs_at(p) != NULL) madvise((void *)begin, (uintptr_t)p + n_bytes - begin, MADV_POPULATE_READ);
}

void apr_map_drop(const void *p, size_t n_bytes)
{
    const apr_input *const input = apr_inputs_at(p);
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)p + n_bytes) / page * page;

    if (input == NULL || end <= begin) return;
    madvise((void *)begin, end - begin, MADV_DONTNEED); /* fadvise does not drop pages that are mapped */
    posix_fadvise(input->fd, (off_t)(begin - (uintptr_t)input->data), (off_t)(end - begin), POSIX_FADV_DONTNEED);
}

void apr_map_read(void *to, const void *from, size_t n_bytes)
{
    const apr_input *const input = apr_inputs_at(from);
    size_t done = 0;

    while (input != NULL && done < n_bytes) {
        const size_t at = (size_t)((const uint8_t *)from - input->data) + done;
        const ssize_t n = pread(input->fd, (uint8_t *)to + done, n_bytes - done, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    if (done < n_bytes) memcpy((uint8_t *)to + done, (const uint8_t *)from + done, n_bytes - done);
}

const apr_input *apr_inputs_at(const void *address)
{
    for (const apr_input *at = first; at != NULL; at = at->next)
        if (at->data != NULL && (uintptr_t)address - (uintptr_t)at->data < at->n_bytes) return at;
    return NULL;
}
