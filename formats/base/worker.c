/* worker.c - a thread and one place for its work. */
#include "formats/base/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct apr_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*work)(void *user); /* NULL: none is left */
    void *user;
    bool ends;
};

static void *run(void *context)
{
    apr_worker *const w = context;

    pthread_mutex_lock(&w->lock);
    while (!w->ends || w->work != NULL) {
        void (*const work)(void *) = w->work;
        if (work == NULL) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        work(w->user);
        pthread_mutex_lock(&w->lock);
        w->work = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

apr_status apr_worker_open(apr_worker **worker, apr_error *err)
{
    apr_worker *const w = *worker = calloc(1, sizeof *w);

    if (w == NULL) return apr_no_memory(err, "a thread");
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

void apr_worker_wait(apr_worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->work != NULL) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void apr_worker_start(apr_worker *w, void (*work)(void *user), void *user)
{
    pthread_mutex_lock(&w->lock);
    while (w->work != NULL) pthread_cond_wait(&w->changed, &w->lock);
    w->work = work;
    w->user = user;
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
