/* bench_concurrency.h - speed by number of sequences: N prompts at once through the scheduler, all submitted at the start. */
#ifndef APR_ENGINE_BENCH_CONCURRENCY_H
#define APR_ENGINE_BENCH_CONCURRENCY_H

#include "formats/base/progress.h"
#include "runtime/session/speed.h"
#include "tools/engine/bench/bench_stages.h"

typedef struct apr_concurrency_options {
    apr_lengths sequences;      /* each at least 1 */
    int64_t n_prompt, n_tokens; /* of each sequence */
    int n_runs;                 /* after one that is not measured */
    uint64_t seed;
} apr_concurrency_options;

/* Of one number of sequences, run by run. */
typedef struct apr_concurrency_result {
    int64_t n_sequences;
    double seconds[APR_SPEED_MOST_RUNS];       /* from the first prompt to the last token */
    double step[APR_SPEED_MOST_RUNS];          /* time per token of a sequence while all decode; 0: they never did */
    double first[APR_SPEED_MOST_RUNS];         /* time to first token: mean, */
    double late_first[APR_SPEED_MOST_RUNS];    /* 95th percentile, */
    double longest_first[APR_SPEED_MOST_RUNS]; /* largest */
} apr_concurrency_result;

/* APR_E_USAGE: a number is 0 or too large, or there is nothing to measure. option: the one that gave the numbers. */
apr_status apr_concurrency_check(const apr_concurrency_options *asked, const char *option, apr_error *err);
/* figures: [asked->sequences.n]. Opens a session with the options for each number; other sessions stay open. */
apr_status apr_concurrency_measure(apr_concurrency_result *figures, const apr_concurrency_options *asked, const apr_model *model,
                                   const apr_session_options *options, const apr_progress *progress, apr_error *err);

/* Decoded tokens of all sequences per second, over the whole time. */
apr_spread apr_concurrency_rates(const apr_concurrency_result *figures, const apr_concurrency_options *asked);
/* The same while all decode, as llama-batched-bench measures it. The median; 0: they never did. */
double apr_concurrency_decode_rate(const apr_concurrency_result *figures, const apr_concurrency_options *asked);

#endif
