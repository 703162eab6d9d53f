/* clock.h - elapsed time: seconds of the monotonic clock, which ignores changes of the wall clock. */
#ifndef APR_FORMATS_CLOCK_H
#define APR_FORMATS_CLOCK_H

#include <time.h>

static inline double apr_seconds_now(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
