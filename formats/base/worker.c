/* worker.c - a thread and a ring of the pieces that are left. */
#include "formats/base/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct piece {
    void (*work)(void *user);
    void *user;
} piece;

struct apr_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t n_started, n_ended;
    size_t most;
    bool ends;
    piece pieces[]; /* piece k at k % most */
};

static void *run(void *context)
{
    apr_worker *const w = context;

    pthread_mutex_lock(&w->lock);
    while (!w->ends || w->n_ended < w->n_started) {
        if (w->n_ended == w->n_started) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        const piece next = w->pieces[w->n_ended % w->most];
        pthread_mutex_unlock(&w->lock);
        next.work(next.user);
        pthread_mutex_lock(&w->lock);
        w->n_ended++;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

apr_status apr_worker_open(apr_worker **worker, size_t most, apr_error *err)
{
    apr_worker *const w = *worker = calloc(1, sizeof *w + most * sizeof *w->pieces);

    if (w == NULL) return apr_no_memory(err, "a thread");
    w->most = most;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    const int failed = pthread_create(&w->thread, NULL, run, w);
    if (failed == 0) return APR_OK;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *worker = NULL;
    return apr_fail(err, APR_E_MEMORY, "a thread cannot be started: %s", strerror(failed));
}

void apr_worker_wait(apr_worker *w, uint64_t n)
{
    pthread_mutex_lock(&w->lock);
    while (w->n_ended < n) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

uint64_t apr_worker_n_ended(apr_worker *w)
{
    pthread_mutex_lock(&w->lock);
    const uint64_t n = w->n_ended;
    pthread_mutex_unlock(&w->lock);
    return n;
}

void apr_worker_start(apr_worker *w, void (*work)(void *user), void *user)
{
    pthread_mutex_lock(&w->lock);
    while (w->n_started - w->n_ended >= w->most) pthread_cond_wait(&w->changed, &w->lock);
    w->pieces[w->n_started++ % w->most] = (piece){work, user};
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void apr_worker_close(apr_worker *w)
{
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL); /* after the work that is left */
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
