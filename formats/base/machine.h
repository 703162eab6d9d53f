/* machine.h - how much memory a process may use: that of the machine, or less where a container or a service has a limit.
 *
 * A limit is one of a control group (cgroup). A process is in one group, and in those above it; each may have a limit, and who exceeds one
 * is killed without a word. So plans are held to the smallest. */
#ifndef APR_FORMATS_BASE_MACHINE_H
#define APR_FORMATS_BASE_MACHINE_H

#include <stdint.h>

/* Bytes of memory, or the limit; 0: not known. */
uint64_t apr_machine_bytes(void);
/* Bytes that can be taken now without swapping: Linux's estimate, or what is left of the limit. 0: not known. */
uint64_t apr_machine_available(void);

/* Of control groups. UINT64_MAX: without a limit. */
typedef struct apr_memory_limit {
    uint64_t bytes, left; /* left: without what files in memory would give back */
} apr_memory_limit;

/* self: the groups of a process, as /proc/self/cgroup; mount: where they are, as /sys/fs/cgroup. Versions 1 and 2. */
apr_memory_limit apr_cgroup_limit(const char *self, const char *mount);

#endif
