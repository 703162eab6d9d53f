/* worker.h - a thread that does pieces of work in their order while its owner does something else.
 *
 *     apr_worker_start(worker, work, user)     work(user) runs on the worker's thread, after the pieces before
 *     apr_worker_wait(worker, n)               returns when the first n pieces, counted from opening, have ended
 *
 * One thread owns a worker. What work(user) wrote is seen after waiting for it. The work may use OpenMP: its threads are not those of the
 * owner. */
#ifndef APR_FORMATS_WORKER_H
#define APR_FORMATS_WORKER_H

#include "formats/base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct apr_worker apr_worker;

/* most: pieces that may be left at a time; apr_worker_start waits while there are so many. */
apr_status apr_worker_open(apr_worker **worker, size_t most, apr_error *err);
void apr_worker_close(apr_worker *worker); /* waits for all; NULL is allowed */

void apr_worker_start(apr_worker *worker, void (*work)(void *user), void *user);
void apr_worker_wait(apr_worker *worker, uint64_t n);
uint64_t apr_worker_n_ended(apr_worker *worker); /* what these pieces wrote is seen */

#endif
