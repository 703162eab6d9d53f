/* map.c - opens, maps and remembers inputs. The descriptor stays open: it identifies the opened file even if its name changes. */
#define _GNU_SOURCE /* madvise, mremap */
#include "formats/files/inputs.h"

#include "formats/base/crc32.h"

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

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
typedef struct entry {
    apr_input input; /* first: an input is converted to its entry */
    struct entry *next_of_all;
    apr_input_owner *owner;
    size_t n_kept;
} entry;

static entry *_Atomic first_of_all; /* atomic, because the signal handler takes no lock */
static apr_input_owner process;
static _Thread_local apr_input_owner *own;

static entry *entry_of(const apr_input *input) { return (entry *)(uintptr_t)input; }

static apr_input_owner *owner_now(void) { return own != NULL ? own : &process; }

apr_input_owner *apr_inputs_own(apr_input_owner *owner)
{
    apr_input_owner *const before = own;
    own = owner;
    return before;
}

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

static void add_input(apr_input *input)
{
    apr_input_owner *const owner = owner_now();

    pthread_rwlock_wrlock(&lock);
    for (apr_input *at = owner->first; at != NULL; at = at->next) /* opened earlier, and changed since */
        if (strcmp(at->path, input->path) == 0 && !is_same_version(&at->at_open, &input->at_open)) at->changed = true;
    entry_of(input)->owner = owner;
    input->next = owner->first;
    owner->first = input;
    entry_of(input)->next_of_all = first_of_all;
    first_of_all = entry_of(input);
    pthread_rwlock_unlock(&lock);
}

apr_status apr_map_open(apr_map *map, const char *path, apr_error *err)
{
    *map = (apr_map){0};
    apr_input *const input = calloc(1, sizeof(entry));
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
    add_input(input);
    if (input->n_bytes == 0) return APR_OK;
    status = apr_map_keep(map, input->n_bytes <= APR_KEPT_FILE ? input->n_bytes : APR_KEPT_HEAD, err);
    if (status != APR_OK) apr_map_forget(map);
    return status;
}

apr_status apr_map_zeros(apr_map *map, uint64_t n_bytes, apr_error *err)
{
    *map = (apr_map){0};
    if (n_bytes == 0) return APR_OK;
    apr_input *const input = calloc(1, sizeof(entry));
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
    add_input(input);
    return APR_OK;
}

static void remove_input(apr_input *input)
{
    apr_input **at = &entry_of(input)->owner->first;
    entry *const removed = entry_of(input), *before = NULL;

    pthread_rwlock_wrlock(&lock);
    while (*at != input) at = &(*at)->next;
    *at = input->next;
    for (entry *i = first_of_all; i != removed; i = i->next_of_all) before = i;
    if (before != NULL) before->next_of_all = removed->next_of_all;
    else first_of_all = removed->next_of_all;
    pthread_rwlock_unlock(&lock);
    free_input(input);
}

static void close_map(apr_map *map, bool keep)
{
    apr_input *const input = map->input;

    if (input != NULL) {
        input->changed = has_changed(input);
        pthread_rwlock_wrlock(&lock); /* other threads look for addresses */
        input->data = NULL;
        pthread_rwlock_unlock(&lock);
        if (map->data != NULL) munmap((void *)(uintptr_t)map->data, map->n_bytes);
        if (input->fd >= 0) close(input->fd);
        input->fd = -1;
        if (!keep) remove_input(input);
    }
    *map = (apr_map){0};
}

void apr_map_close(apr_map *map) { close_map(map, map->input != NULL && entry_of(map->input)->owner->keeps_closed); }
void apr_map_forget(apr_map *map) { close_map(map, false); }

const apr_input *apr_inputs(void) { return owner_now()->first; }

bool apr_inputs_keep_closed(bool closed_ones)
{
    apr_input_owner *const owner = owner_now();
    const bool before = owner->keeps_closed;
    owner->keeps_closed = closed_ones;
    return before;
}

bool apr_inputs_are_kept(void) { return owner_now()->keeps_closed; }

void apr_inputs_start(void) { owner_now()->keeps_closed = true; }

void apr_inputs_end(void)
{
    apr_input_owner *const owner = owner_now();

    owner->keeps_closed = false;
    for (apr_input *at = owner->first, *next; at != NULL; at = next) {
        next = at->next;
        if (at->fd < 0) remove_input(at);
    }
}

apr_status apr_inputs_check(apr_error *err)
{
    for (const apr_input *at = owner_now()->first; at != NULL; at = at->next)
        if (has_changed(at))
            return apr_fail(err, APR_E_IO, "%s: was changed by another program while it was being read; start again when it is complete",
                            at->path);
    return APR_OK;
}

/* As apr_inputs_at, while other threads open and close files. */
static apr_input *input_at(const void *address)
{
    pthread_rwlock_rdlock(&lock);
    const apr_input *const input = apr_inputs_at(address);
    pthread_rwlock_unlock(&lock);
    return (apr_input *)(uintptr_t)input;
}

/* --- copies in private memory --- */

/* Reads n bytes of the file at `at`. Bytes after the end that it had when it was opened are zeros. */
static apr_status read_pages(const apr_input *input, size_t at, uint8_t *to, size_t n, apr_error *err)
{
    const size_t n_file = at + n <= input->n_bytes ? n : input->n_bytes - at;
    size_t done = 0;

    while (done < n_file) {
        const ssize_t got = pread(input->fd, to + done, n_file - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return apr_fail(err, APR_E_IO, "%s: read error at byte %zu: %s", input->path, at + done, strerror(errno));
        if (got == 0)
            return apr_fail(err, APR_E_IO,
                            "%s: was cut short by another program while it was being read: %zu bytes are left of %zu; get the file again",
                            input->path, at + done, input->n_bytes);
        done += (size_t)got;
    }
    return APR_OK;
}

/* Makes the copy elsewhere and moves it there in one step, so that no thread sees half of it. */
static apr_status copy_pages(const apr_input *input, size_t at, size_t n, apr_error *err)
{
    if (n == 0) return APR_OK;
    void *const copy = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return apr_no_memory(err, "a copy of a file");
    apr_status status = read_pages(input, at, copy, n, err);
    if (status == APR_OK) mprotect(copy, n, PROT_READ);
    if (status == APR_OK && mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)((uintptr_t)input->data + at)) != MAP_FAILED)
        return APR_OK;
    munmap(copy, n);
    return status != APR_OK ? status : apr_no_memory(err, "a copy of a file");
}

static size_t page_below(size_t at) { return at / (size_t)sysconf(_SC_PAGESIZE) * (size_t)sysconf(_SC_PAGESIZE); }
static size_t page_above(size_t at) { return page_below(at + (size_t)sysconf(_SC_PAGESIZE) - 1); }

static bool is_copied(const apr_input *input) { return input != NULL && entry_of(input)->owner->copies && input->fd >= 0; }

/* The pages of [p, p + n_bytes) that are not kept, as offsets in the file. */
static void pages_of(const apr_input *input, const void *p, size_t n_bytes, size_t *begin, size_t *end)
{
    const size_t at = (size_t)((const uint8_t *)p - input->data), kept = page_above(entry_of(input)->n_kept);
    *begin = page_below(at) > kept ? page_below(at) : kept;
    *end = page_above(at + n_bytes);
}

apr_status apr_map_load(const void *p, size_t n_bytes, apr_error *err)
{
    const apr_input *const input = n_bytes > 0 ? input_at(p) : NULL;
    size_t begin, end;

    if (!is_copied(input)) return APR_OK;
    pages_of(input, p, n_bytes, &begin, &end);
    return end > begin ? copy_pages(input, begin, end - begin, err) : APR_OK;
}

static void map_again(const apr_input *input, size_t begin, size_t end)
{
    if (end > begin)
        mmap((void *)((uintptr_t)input->data + begin), end - begin, PROT_READ, MAP_SHARED | MAP_FIXED, input->fd, (off_t)begin);
}

void apr_map_unload(const void *p, size_t n_bytes)
{
    const apr_input *const input = n_bytes > 0 ? input_at(p) : NULL;
    size_t begin, end;

    if (!is_copied(input)) return;
    pages_of(input, p, n_bytes, &begin, &end);
    map_again(input, begin, end);
}

apr_status apr_map_keep(const apr_map *map, size_t n_bytes, apr_error *err)
{
    apr_input *const input = map->input;

    if (!is_copied(input) || map->data == NULL) return APR_OK;
    const size_t was = page_above(entry_of(input)->n_kept), is = page_above(n_bytes < map->n_bytes ? n_bytes : map->n_bytes);
    if (is > was) APR_TRY(copy_pages(input, was, is - was, err));
    else map_again(input, is, was);
    entry_of(input)->n_kept = n_bytes < map->n_bytes ? n_bytes : map->n_bytes;
    return APR_OK;
}

void apr_map_prefetch(const void *p, size_t n_bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p / page * page;
    if (n_bytes > 0 && input_at(p) != NULL) madvise((void *)begin, (uintptr_t)p + n_bytes - begin, MADV_POPULATE_READ);
}

void apr_map_drop(const void *p, size_t n_bytes)
{
    const apr_input *const input = input_at(p);
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)p + n_bytes) / page * page;

    if (input == NULL || end <= begin || entry_of(input)->owner->copies) return; /* dropped pages of a copy would be zeros */
    madvise((void *)begin, end - begin, MADV_DONTNEED);                          /* fadvise does not drop pages that are mapped */
    posix_fadvise(input->fd, (off_t)(begin - (uintptr_t)input->data), (off_t)(end - begin), POSIX_FADV_DONTNEED);
}

void apr_map_read(void *to, const void *from, size_t n_bytes)
{
    apr_input *const input = input_at(from);
    size_t done = 0;

    while (input != NULL && input->fd >= 0 && done < n_bytes) {
        const size_t at = (size_t)((const uint8_t *)from - input->data) + done;
        const ssize_t n = pread(input->fd, (uint8_t *)to + done, n_bytes - done, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    if (done == n_bytes) return;
    if (is_copied(input)) {
        memset((uint8_t *)to + done, 0, n_bytes - done);
        __atomic_store_n(&input->changed, true, __ATOMIC_RELAXED); /* threads read portions */
    } else {
        memcpy((uint8_t *)to + done, (const uint8_t *)from + done, n_bytes - done);
    }
}

uint32_t apr_map_crc32(uint32_t crc, const void *p, size_t n_bytes)
{
    uint8_t copy[4096];

    for (size_t at = 0, part; at < n_bytes; at += part) {
        part = n_bytes - at < sizeof copy ? n_bytes - at : sizeof copy;
        apr_map_read(copy, (const uint8_t *)p + at, part);
        crc = apr_crc32(crc, copy, part);
    }
    return crc;
}

const apr_input *apr_inputs_at(const void *address)
{
    for (const entry *at = first_of_all; at != NULL; at = at->next_of_all)
        if (at->input.data != NULL && (uintptr_t)address - (uintptr_t)at->input.data < at->input.n_bytes) return &at->input;
    return NULL;
}

bool apr_is_folder(const char *path)
{
    struct stat st;
    return path != NULL && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
