/* progress.h - how long work tells how far it is. Called from one thread at a time, often: the receiver limits the rate.
 * what NULL: so much was done by runs before this one; told once, before the work. */
#ifndef APR_FORMATS_PROGRESS_H
#define APR_FORMATS_PROGRESS_H

#include <stdint.h>

typedef void (*apr_progress_fn)(void *context, uint64_t done_bytes, uint64_t total_bytes, const char *what);

typedef struct apr_progress {
    apr_progress_fn report; /* NULL: nobody listens */
    void *context;
} apr_progress;

static inline void apr_progress_report(const apr_progress *progress, uint64_t done_bytes, uint64_t total_bytes, const char *what)
{
    if (progress != 0 && progress->report != 0) progress->report(progress->context, done_bytes, total_bytes, what);
}

#endif
