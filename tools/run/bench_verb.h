/* bench_verb.h - `aprrun bench`: speed and memory of a model, or of a config.json with random weights. */
#ifndef APR_TOOLS_BENCH_VERB_H
#define APR_TOOLS_BENCH_VERB_H

#include "tools/cli/cli.h"

extern const apr_option apr_bench_options[];
extern const size_t apr_bench_options_bytes;
extern const char *const apr_bench_examples[];

apr_status apr_run_bench(const apr_call *call, apr_error *err);

#endif
