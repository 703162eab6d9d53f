/* host_memory.h - how fast all cores together read memory: the upper bound of decoding on the host. */
#ifndef APR_TOOLS_HOST_MEMORY_H
#define APR_TOOLS_HOST_MEMORY_H

#include <stdint.h>

/* Bytes per second: the best of a few passes over an array that is larger than the caches. n_threads 0: all. Returns 0.0 without memory. */
double apr_host_read_rate(int n_threads);

/* Size of the last-level cache; 0: not known. */
uint64_t apr_host_cache_bytes(void);

#endif
