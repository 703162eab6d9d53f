/* host_memory.h - how fast this machine's processors read memory, all together: what decoding on the host can reach at most. */
#ifndef APR_TOOLS_HOST_MEMORY_H
#define APR_TOOLS_HOST_MEMORY_H

#include <stdint.h>

/* Bytes a second, the best of a few rounds over memory that no cache holds; takes a moment. n_threads 0: all. 0.0: no memory for it. */
double apr_host_read_rate(int n_threads);

/* Of the last cache before the memory; 0: not known. */
uint64_t apr_host_cache_bytes(void);

#endif
