/* machine.h - what this machine has. */
#ifndef APR_FORMATS_BASE_MACHINE_H
#define APR_FORMATS_BASE_MACHINE_H

#include <stdint.h>
#include <unistd.h>

/* Bytes of its memory; 0: not known. */
static inline uint64_t apr_machine_bytes(void)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return n_pages > 0 && page > 0 ? (uint64_t)n_pages * (uint64_t)page : 0;
}

#endif
