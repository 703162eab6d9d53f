/* runtime/session/speed.h - how fast a session reads prompts and decodes tokens, in seconds on a monotonic clock.
 *
 * A stage is a number of tokens after a depth of other tokens, read at once (a prompt) or decoded one at a time. Token ids are
 * pseudo-random and fixed in advance. The argmax of each token is computed, as in a generation, but not used; so the model's output
 * (repeated tokens, the same experts) does not affect the figure. The tokens of the depth are read once and not measured; each run
 * begins after them. (Recurrent states are then those of the previous run, at the same cost.) Before the measurement each stage, or a
 * few of its tokens, runs once as a warm-up.
 *
 * Each stage is measured again with only the products with weight matrices; the difference is the time outside of them. */
#ifndef APR_RUNTIME_SPEED_H
#define APR_RUNTIME_SPEED_H

#include "runtime/session/session.h"

enum { APR_SPEED_MOST_RUNS = 100 };

typedef struct apr_speed_stage {
    int64_t depth, n_tokens;
    bool one_by_one;
    /* results: [n_runs] seconds of all tokens of the stage, and of their products alone */
    double seconds[APR_SPEED_MOST_RUNS], product_seconds[APR_SPEED_MOST_RUNS];
} apr_speed_stage;

typedef struct apr_speed_options {
    int n_runs;    /* 1 to APR_SPEED_MOST_RUNS */
    uint64_t seed; /* of the token ids */
    void (*on_run)(void *user, int n_done,
                   int n_runs); /* may be NULL; counts all stages' runs, those of products alone and warm-ups included */
    void *user;
} apr_speed_options;

/* Measures the stages in order; a deeper stage after a shallower one reads fewer tokens. *finite: the logits of each stage's last token
 * are all finite. Resets the session. APR_E_USAGE: there is nothing to measure, or a stage exceeds the context. */
apr_status apr_speed_measure(apr_session *session, apr_speed_stage *stages, size_t n_stages, const apr_speed_options *options, bool *finite,
                             apr_error *err);

/* Median, minimum and maximum of n values. */
typedef struct apr_spread {
    double median, low, high;
} apr_spread;
apr_spread apr_speed_spread(const double *values, int n);
/* tokens / seconds[i], of n runs; zeros for 0 tokens. */
apr_spread apr_speed_rates(int64_t n_tokens, const double *seconds, int n);
/* Seconds of a run outside of its products: the difference of the medians, never below 0. */
double apr_speed_overhead(const apr_speed_stage *stage, int n_runs);

#endif
