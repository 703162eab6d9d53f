/* prefault.c - background threads that allocate one window of the file after another. */
#define _DEFAULT_SOURCE /* madvise, MAP_ANONYMOUS */
#include "formats/files/prefault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    LARGE_BYTES = 2 * 1024 * 1024,
    WINDOW_BYTES = 16 * 1024 * 1024, /* one madvise call each; each call drains the page lists of all cores */
    MOST_THREADS = 4                 /* enough: they clear memory faster than a conversion fills it */
};

struct apr_prefault {
    int fd;
    size_t n_windows; /* whole large pages only; the rest of the file is allocated at its first write */
    uint64_t n_bytes;
    atomic_size_t next;
    atomic_bool is_over; /* stopped, or the kernel had no large pages */
    atomic_uchar *done;  /* [n_windows] */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t threads[MOST_THREADS];
    int n_threads;
};

void *apr_prefault_map(int fd, uint64_t start, uint64_t end)
{
    const size_t n = (size_t)(end - start), reserved = n + LARGE_BYTES, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *const reserved_at = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved_at == MAP_FAILED) return NULL;
    const size_t skip = (size_t)((start - (uintptr_t)reserved_at) % LARGE_BYTES), used = (n + page - 1) / page * page;
    void *const p = mmap(reserved_at + skip, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)start);
    if (p == MAP_FAILED) {
        munmap(reserved_at, reserved);
        return NULL;
    }
    if (skip > 0) munmap(reserved_at, skip);
    if (skip + used < reserved) munmap(reserved_at + skip + used, reserved - skip - used);
    return p;
}

/* Writes one small page in each large page first: MADV_COLLAPSE needs at least one page to collapse. */
static bool make_window(const apr_prefault *a, size_t window)
{
    const uint64_t start = (uint64_t)window * WINDOW_BYTES, left = a->n_bytes - start;
    const size_t n = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *const p = apr_prefault_map(a->fd, start, start + n);
    bool is_there = p != NULL;

    for (size_t at = 0; at < n && is_there; at += LARGE_BYTES) is_there = madvise(p + at, page, MADV_POPULATE_WRITE) == 0;
    if (is_there) is_there = madvise(p, n, MADV_COLLAPSE) == 0;
    if (p != NULL) munmap(p, n);
    return is_there;
}

static void wake_waiters(apr_prefault *a)
{
    pthread_mutex_lock(&a->mutex);
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
}

static void *make_windows(void *context)
{
    apr_prefault *const a = context;
    size_t window;

    while (!a->is_over && (window = atomic_fetch_add(&a->next, 1)) < a->n_windows) {
        if (make_window(a, window)) a->done[window] = 1;
        else a->is_over = true;
        wake_waiters(a);
    }
    return NULL;
}

apr_prefault *apr_prefault_start(int fd, uint64_t n_bytes)
{
    const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int n_threads = n_cores >= 4 * MOST_THREADS ? MOST_THREADS : n_cores >= 8 ? 2 : 1;
    apr_prefault *const a = calloc(1, sizeof *a);

    if (a == NULL) return NULL;
    a->fd = fd;
    a->n_bytes = n_bytes / LARGE_BYTES * LARGE_BYTES;
    a->n_windows = (size_t)((a->n_bytes + WINDOW_BYTES - 1) / WINDOW_BYTES);
    a->done = calloc(a->n_windows + 1, sizeof *a->done);
    pthread_mutex_init(&a->mutex, NULL);
    pthread_cond_init(&a->changed, NULL);
    while (a->done != NULL && a->n_threads < n_threads && pthread_create(&a->threads[a->n_threads], NULL, make_windows, a) == 0)
        a->n_threads++;
    if (a->n_threads > 0) return a;
    apr_prefault_stop(a);
    return NULL;
}

void apr_prefault_wait(apr_prefault *a, uint64_t start, uint64_t end)
{
    if (a == NULL) return;
    for (size_t w = (size_t)(start / WINDOW_BYTES); w < a->n_windows && (uint64_t)w * WINDOW_BYTES < end; w++) {
        if (a->done[w]) continue;
        pthread_mutex_lock(&a->mutex);
        while (!a->done[w] && !a->is_over) pthread_cond_wait(&a->changed, &a->mutex);
        pthread_mutex_unlock(&a->mutex);
    }
}

void apr_prefault_stop(apr_prefault *a)
{
    if (a == NULL) return;
    a->is_over = true;
    for (int i = 0; i < a->n_threads; i++) pthread_join(a->threads[i], NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->mutex);
    free(a->done);
    free(a);
}
