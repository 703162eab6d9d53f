/* pipe_queue.h - runs portions of a tensor: all threads make them in any order; one thread at a time takes them, in order.
 *
 * There is no barrier. A thread that finds the next portions ready takes them, while the others make more. A thread
 * sleeps only if all slots are full or no portion is left to begin. It never spins, unlike OpenMP's threads, which would slow
 * other processes on a busy machine. */
#ifndef APR_CONVERT_PIPE_QUEUE_H
#define APR_CONVERT_PIPE_QUEUE_H

#include "formats/base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct apr_portion_work {
    int64_t n_portions;
    size_t n_slots; /* portion i is made in slot i % n_slots */
    int n_threads;  /* at most, including the caller; numbered from 0 */
    void *context;
    apr_status (*make)(void *context, int64_t portion, size_t slot, int thread, apr_error *err);
    /* Takes portions [first, first + n), which are in consecutive slots. Never two calls at a time; on any thread. */
    apr_status (*take)(void *context, int64_t first, int64_t n, apr_error *err);
} apr_portion_work;

/* How many slots that many threads can use well. */
size_t apr_portion_slots(int n_threads);

/* The first failure ends the run, after the portions being made are finished. */
apr_status apr_run_portions(const apr_portion_work *work, apr_error *err);

#endif
