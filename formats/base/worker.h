/* worker.h - a thread that does one piece of work at a time while its owner does something else.
 *
 *     apr_worker_start(worker, work, user)     work(user) runs on the worker's thread, after the piece before
 *     apr_worker_wait(worker)                  returns when no work is left
 *
 * One thread owns a worker. What work(user) wrote is seen after waiting. The work may use OpenMP: its threads are not those of the owner. */
#ifndef APR_FORMATS_WORKER_H
#define APR_FORMATS_WORKER_H

#include "formats/base/status.h"

typedef struct apr_worker apr_worker;

apr_status apr_worker_open(apr_worker **worker, apr_error *err);
void apr_worker_close(apr_worker *worker); /* waits; NULL is allowed */

void apr_worker_start(apr_worker *worker, void (*work)(void *user), void *user);
void apr_worker_wait(apr_worker *worker);

#endif
