/* guard.h - clean ends for a process that is killed before it gives its answer: no unfinished files, and never exit code 0 or 1.
 *
 * - Before a signal ends the process, unfinished outputs are removed (formats/files/out.h). Ignored signals stay ignored. For SIGINT
 *   and SIGTERM a message says that nothing was written, or how much of the output is kept and where.
 * - SIGBUS on a mapped input (another program truncated the file, or the disk failed) gives a message and exit code 3, on any
 *   thread. With --json it also gives the JSON object.
 * - A file that exceeds the size limit (ulimit -f) gives a write error, not a signal.
 * - If a library calls exit(), as OpenMP does when it cannot create threads, the process ends with exit code 6 and a message. */
#ifndef APR_TOOLS_GUARD_H
#define APR_TOOLS_GUARD_H

#include <stdbool.h>
#include <stdint.h>

void apr_guard_start(const char *tool, bool json);
/* This command writes outputs. They are removed if it is killed, unless apr_guard_protects was called. */
void apr_guard_writes(void);
/* The unfinished output is kept in `path`; running the same command again continues it. */
void apr_guard_protects(const char *path);
/* How much of it is done, for the message. */
void apr_guard_kept(uint64_t done, uint64_t total);

/* An output is complete, and what follows may be lost without loss of it. `what` completes "stopped; ". */
void apr_guard_wrote(const char *what);

/* The answer has been given: exit() is normal from here on. */
void apr_guard_answered(void);

#endif
