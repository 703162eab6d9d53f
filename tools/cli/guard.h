/* guard.h - a process that does not end by its answer still leaves nothing unfinished, and never says yes or no.
 *
 * - A signal that ends the process first removes what is unfinished (formats/base/out.h). Signals that were ignored stay ignored.
 *   Of SIGINT and SIGTERM one sentence says what became of the output: nothing was written, or how much is kept where.
 * - A page of an input that is gone (another program cut the file short, the disk failed) is one sentence and exit code 3, on
 *   whatever thread it was met; with --json also the document.
 * - A file that may not grow further (ulimit -f) is an error of writing, not a signal.
 * - A library that calls exit(), as OpenMP's does when it gets no threads, ends the process with exit code 6 and a sentence. */
#ifndef APR_TOOLS_GUARD_H
#define APR_TOOLS_GUARD_H

#include <stdbool.h>
#include <stdint.h>

void apr_guard_start(const char *tool, bool json);
/* Outputs are written by this command: what is unfinished goes with the process, unless apr_guard_keeps says where it is kept. */
void apr_guard_writes(void);
/* It is kept in `path`, and the same command goes on from there. */
void apr_guard_keeps(const char *path);
/* So much of it. */
void apr_guard_kept(uint64_t done, uint64_t total);

/* From here on the process may end: the answer has been given. */
void apr_guard_answered(void);

#endif
