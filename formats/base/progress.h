/* progress.h - progress reports of long work. Called often, from one thread at a time; the receiver limits the rate.
 * what == NULL: done_bytes were done by earlier runs; reported once, before the work. */
#ifndef APR_FORMATS_PROGRESS_H
#define APR_FORMATS_PROGRESS_H

#include <stdint.h>

typedef void (*apr_progress_fn)(void *context, uint64_t done_bytes, uint64_t total_bytes, const char *what);

typedef struct apr_progress {
    apr_progress_fn report; /* NULL: no reports */
    void *context;
} apr_progress;

static inline void apr_progress_report(const apr_progress *progress, uint64_t done_bytes, uint64_t total_bytes, const char *what)
{
    if (progress != 0 && progress->report != 0) progress->report(progress->context, done_bytes, total_bytes, what);
}

#endif
