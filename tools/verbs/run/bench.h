/* bench.h - options of aprrun bench that are lists of lengths: "512,2048". */
#ifndef APR_VERBS_BENCH_H
#define APR_VERBS_BENCH_H

#include "tools/engine/bench/bench_stages.h"

/* APR_E_USAGE, with the option's name: not a list of whole numbers from 0 to 10^9. */
apr_status apr_lengths_parse(apr_lengths *lengths, const char *option, const char *text, apr_error *err);

#endif
