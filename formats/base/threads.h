/* threads.h - how many threads an amount of work is worth: all there are, or the one that asks.
 *
 * Work is counted in steps. A step is a multiply-add of a vector loop, a weight decoded, a byte read and written: a core does 8 to 16
 * of them in a nanosecond. What takes longer, say an exponential, counts as several (APR_STEPS_EXP). Only the size must be right.
 *
 * What threads cost, measured on two cores (libgomp 12, Sapphire Rapids under KVM; tools/cli/waiting.c says how they wait):
 *     a region that finds its other thread spinning         1.1 to 1.5 us
 *     one that finds it asleep                              4 to 9 us, and 3 to 5 us for each further thread
 *     one of another number of threads than the last       30 to 150 us: libgomp ends the threads that are too many
 *     the same with one thread in between                   nothing: that is no region
 *     asleep, while others use the cores                    up to what the scheduler gives those: 3 ms and more
 * So there is no number in between, and what a core does in ten microseconds it does alone. */
#ifndef APR_FORMATS_BASE_THREADS_H
#define APR_FORMATS_BASE_THREADS_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
static inline int apr_all_threads(void) { return omp_get_max_threads(); }
#else
static inline int apr_all_threads(void) { return 1; }
#endif

enum {
    APR_STEPS_ALONE = 1 << 17, /* 8 to 16 us */
    APR_STEPS_EACH = 1 << 10,  /* more for each thread: it has to be told, and to say that it is done */
    APR_STEPS_EXP = 16         /* an exponential, a logarithm, a division, a number of a search */
};

/* For work of n_pieces that can be done side by side: `most`, or 1. Never more than one for one piece. */
static inline int apr_threads(int most, int64_t n_pieces, double steps)
{
    return n_pieces > 1 && steps >= APR_STEPS_ALONE + (double)most * APR_STEPS_EACH ? most : 1;
}

#endif
