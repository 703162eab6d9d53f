/* threads.h - how many threads an amount of work is worth: all of them, or only the calling one.
 *
 * Work is counted in steps. A step is a multiply-add of a vector loop, a weight decoded, a byte read and written: a core does 8 to 16
 * of them in a nanosecond. What takes longer, say an exponential, counts as several (APR_OPS_EXP). Only the size must be right.
 *
 * What threads cost, measured on two cores (libgomp 12, Sapphire Rapids under KVM; tools/cli/openmp_spin.c says how they wait):
 *     a region that finds its other thread spinning         1.1 to 1.5 us
 *     one that finds it asleep                              4 to 9 us, and 3 to 5 us for each further thread
 *     one with another number of threads than the last       30 to 150 us: libgomp ends the surplus threads
 *     the same with one thread in between                   nothing: that is not a region
 *     asleep, while other processes use the cores                    up to their time slice: 3 ms and more
 * So no number in between is worth it, and work of less than ten microseconds runs on one core. */
#ifndef APR_FORMATS_BASE_THREADS_H
#define APR_FORMATS_BASE_THREADS_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
static inline int apr_all_threads(void) { return omp_get_max_threads(); }
static inline int apr_thread_number(void) { return omp_get_thread_num(); } /* of the calling thread in its team, from 0 */
#else
static inline int apr_all_threads(void) { return 1; }
static inline int apr_thread_number(void) { return 0; }
#endif

enum {
    APR_OPS_ONE_THREAD = 1 << 17, /* 8 to 16 us */
    APR_OPS_PER_THREAD = 1 << 10, /* for each thread: the cost of starting it and waiting for it */
    APR_OPS_EXP = 16              /* an exponential, a logarithm, a division, one probe of a search */
};

/* The threads for n_pieces of independent work: `most`, or 1. Always 1 for one piece. */
static inline int apr_threads(int most, int64_t n_pieces, double steps)
{
    return n_pieces > 1 && steps >= APR_OPS_ONE_THREAD + (double)most * APR_OPS_PER_THREAD ? most : 1;
}

#endif
