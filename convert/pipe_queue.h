/* pipe_queue.h - portions of a tensor, made by all threads in any order, taken in by one of them at a time in theirs.
 *
 * There is no barrier between them: whichever thread finds the next portions ready takes them in, while the others go on. A thread
 * sleeps only when all slots are full, or when nothing is left to begin; it never spins, as OpenMP's threads do, which would take
 * the processor from others on a busy machine. */
#ifndef APR_CONVERT_PIPE_QUEUE_H
#define APR_CONVERT_PIPE_QUEUE_H

#include "formats/base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct apr_portion_work {
    int64_t n_portions;
    size_t n_slots; /* portion i is made in slot i % n_slots */
    int n_threads;  /* at most, the caller's among them; numbered from 0 */
    void *context;
    apr_status (*make)(void *context, int64_t portion, size_t slot, int thread, apr_error *err);
    /* Portions [first, first + n), which lie in slots one after another. Never two calls at a time, on any thread. */
    apr_status (*take)(void *context, int64_t first, int64_t n, apr_error *err);
} apr_portion_work;

/* How many slots pay for that many threads. */
size_t apr_portion_slots(int n_threads);

/* The first failure ends it, when what the other threads are making is made. */
apr_status apr_run_portions(const apr_portion_work *work, apr_error *err);

#endif
