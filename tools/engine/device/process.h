/* process.h - memory use of this process, and free memory of the machine, as the kernel reports them. */
#ifndef APR_TOOLS_PROCESS_H
#define APR_TOOLS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct apr_process_memory {
    bool known;
    uint64_t anonymous, file; /* resident bytes: own memory (heap, stacks), and mapped files */
    uint64_t peak;            /* of their sum, so far */
} apr_process_memory;

apr_process_memory apr_process_memory_now(void);

#endif
