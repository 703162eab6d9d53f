/* process.h - what the kernel says of memory: this process's, and what is left. */
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

/* Bytes that the machine can give without swapping, files in its cache among them; 0: not known. */
uint64_t apr_available_memory(void);

#endif
