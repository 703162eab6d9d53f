/* process.h - what the kernel says of this process's memory. */
#ifndef APR_TOOLS_PROCESS_H
#define APR_TOOLS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct apr_process_memory {
    bool known;
    uint64_t anonymous, file; /* resident bytes of its own (heap, stacks), and of mapped files */
    uint64_t peak;            /* of both together, so far */
} apr_process_memory;

apr_process_memory apr_process_memory_now(void);

#endif
