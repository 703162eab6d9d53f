/* pipe_queue.c - decides which thread makes or takes which portion. */
#include "convert/pipe_queue.h"

#include <pthread.h>
#include <stdbool.h>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_active_levels(void) { return 0; }
static void omp_set_max_active_levels(int levels) { (void)levels; }
#endif

enum { MOST_SLOTS = 128, MOST_THREADS = 256, AT_ONCE = 16 /* taken together; few enough that slots become free soon */ };

typedef struct queue {
    const apr_portion_work *work;
    pthread_mutex_t mutex; /* protects all below */
    pthread_cond_t changed;
    int64_t n_begun, n_taken;
    int n_started;             /* threads */
    bool is_ready[MOST_SLOTS]; /* made, but not taken yet */
    bool is_taking;
    apr_status status;
    apr_error *err;
} queue;

size_t apr_portion_slots(int n_threads)
{
    const size_t wanted = 2 * AT_ONCE + 2 * (size_t)n_threads;
    return wanted < MOST_SLOTS ? wanted : MOST_SLOTS;
}

/* The number of portions that can be taken now, up to the last slot. */
static int64_t count_ready(const queue *q)
{
    const size_t first = (size_t)(q->n_taken % (int64_t)q->work->n_slots);
    size_t n = 0;
    while (n < AT_ONCE && first + n < q->work->n_slots && q->is_ready[first + n]) n++;
    return (int64_t)n;
}

/* Records the first failure. Called with the mutex held. */
static void note_failure(queue *q, apr_status status, const apr_error *err)
{
    if (status == APR_OK || q->status != APR_OK) return;
    q->status = status;
    if (q->err != NULL) *q->err = *err;
    pthread_cond_broadcast(&q->changed);
}

/* Called with the mutex held; releases it while it works. */
static void take_ready(queue *q, int64_t n)
{
    const int64_t first = q->n_taken;
    const size_t slot = (size_t)(first % (int64_t)q->work->n_slots);

    q->is_taking = true;
    pthread_mutex_unlock(&q->mutex);
    apr_error err = {0};
    const apr_status status = q->work->take(q->work->context, first, n, &err);
    pthread_mutex_lock(&q->mutex);
    q->is_taking = false;
    note_failure(q, status, &err);
    for (int64_t i = 0; i < n; i++) q->is_ready[slot + (size_t)i] = false;
    q->n_taken = first + n;
    pthread_cond_broadcast(&q->changed);
}

/* Called with the mutex held; releases it while it works. */
static void make_next(queue *q, int thread)
{
    const int64_t portion = q->n_begun++;
    const size_t slot = (size_t)(portion % (int64_t)q->work->n_slots);

    pthread_mutex_unlock(&q->mutex);
    apr_error err = {0};
    const apr_status status = q->work->make(q->work->context, portion, slot, thread, &err);
    pthread_mutex_lock(&q->mutex);
    note_failure(q, status, &err);
    q->is_ready[slot] = true;
}

/* All cores are busy already, so OpenMP regions inside run on the calling thread only. */
static void *run_thread(void *context)
{
    queue *const q = context;
    const int64_t n_portions = q->work->n_portions;
    const int levels = omp_get_max_active_levels();

    omp_set_max_active_levels(0);
    pthread_mutex_lock(&q->mutex);
    const int thread = q->n_started++;
    while (q->status == APR_OK && q->n_taken < n_portions) {
        const int64_t n_ready = q->is_taking ? 0 : count_ready(q);
        if (n_ready > 0) take_ready(q, n_ready);
        else if (q->n_begun < n_portions && q->n_begun - q->n_taken < (int64_t)q->work->n_slots) make_next(q, thread);
        else pthread_cond_wait(&q->changed, &q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
    omp_set_max_active_levels(levels);
    return NULL;
}

/* Starts threads in addition to the caller's. If one cannot be started, the run uses fewer threads. */
static int start_threads(queue *q, pthread_t threads[MOST_THREADS])
{
    const int64_t most = q->work->n_portions < q->work->n_threads ? q->work->n_portions : q->work->n_threads;
    int n = 0;

    while (n < most - 1 && n < MOST_THREADS && pthread_create(&threads[n], NULL, run_thread, q) == 0) n++;
    return n;
}

apr_status apr_run_portions(const apr_portion_work *work, apr_error *err)
{
    queue q = {.work = work, .err = err, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t threads[MOST_THREADS];
    const int n = work->n_portions > 1 ? start_threads(&q, threads) : 0;

    run_thread(&q);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_cond_destroy(&q.changed);
    pthread_mutex_destroy(&q.mutex);
    return q.status;
}
