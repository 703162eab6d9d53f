/* parity_verb.h - `aprrun parity`: each operation on the reference and on another backend, from the same input.
 *
 * With --text also the logits after every token of a text, where errors add up as in a run: mean KL divergence at most
 * 1e-4, the same most likely token at 99.5 % of the positions at least.
 *
 * On stdout one JSON line for each operation and position (with --json all of them in one object); the first operation outside
 * its bound is named on stderr, and the exit code is 1. */
#ifndef APR_TOOLS_PARITY_H
#define APR_TOOLS_PARITY_H

#include "tools/cli/cli.h"

extern const apr_option apr_parity_verb_options[];
extern const size_t apr_parity_verb_options_bytes;
extern const char *const apr_parity_verb_examples[];

apr_status apr_run_parity(const apr_call *call, apr_error *err);

#endif
