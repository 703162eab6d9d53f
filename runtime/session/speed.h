/* runtime/session/speed.h - how fast a session reads prompts and decodes tokens, in seconds on a clock that only goes forward.
 *
 * What is measured are stages: so many tokens behind a depth of others, read at once (a prompt) or decoded one at a time. Token ids are
 * pseudo-random and given beforehand: the likeliest token is found each time, as in a generation, but not used, so what a model would say
 * (the same token for ever, the same experts) is no part of the figure. The tokens of the depth are read once, not measured; each run
 * begins behind them. (States that are numbers are then those of the run before: they cost the same.) The stage runs once, or a few
 * tokens of it, before anything is measured.
 *
 * Each stage is measured again with nothing but the products with matrices of weights: what is left is time outside of them. */
#ifndef APR_RUNTIME_SPEED_H
#define APR_RUNTIME_SPEED_H

#include "runtime/session/session.h"

enum { APR_SPEED_MOST_RUNS = 100 };

typedef struct apr_speed_stage {
    int64_t depth, n_tokens;
    bool one_by_one;
    /* filled in: [n_runs] seconds of all tokens of the stage, and of their products alone */
    double seconds[APR_SPEED_MOST_RUNS], product_seconds[APR_SPEED_MOST_RUNS];
} apr_speed_stage;

typedef struct apr_speed_options {
    int n_runs;    /* 1 to APR_SPEED_MOST_RUNS */
    uint64_t seed; /* of the ids */
    void (*on_run)(void *user, int n_done,
                   int n_runs); /* may be NULL; of all stages' runs, those of products alone and the first among them */
    void *user;
} apr_speed_options;

/* Measures the stages in their order; deeper ones behind shallower ones read less. *finite: all logits that were looked at are numbers (the
 * last row of each stage). Resets the session. APR_E_USAGE: nothing to measure, or more than the context holds. */
apr_status apr_speed_measure(apr_session *session, apr_speed_stage *stages, size_t n_stages, const apr_speed_options *options, bool *finite,
                             apr_error *err);

/* Median, least and most of n values. */
typedef struct apr_spread {
    double median, low, high;
} apr_spread;
apr_spread apr_speed_spread(const double *values, int n);
/* tokens / seconds[i], of n runs; zeros for 0 tokens. */
apr_spread apr_speed_rates(int64_t n_tokens, const double *seconds, int n);
/* Seconds of a run of the stage that are not its products': by the medians, never below 0. */
double apr_speed_outside(const apr_speed_stage *stage, int n_runs);

#endif
