/* runtime/session/speed.h - how fast a session reads a prompt and decodes tokens, in seconds on a clock that only goes forward.
 *
 * Token ids are pseudo-random and given beforehand: the likeliest token is found each time, as in a generation, but not used, so what a
 * model would say (the same token for ever, the same experts) is no part of the figure. The prompt and a few tokens run once before
 * anything is measured. */
#ifndef APR_RUNTIME_SPEED_H
#define APR_RUNTIME_SPEED_H

#include "runtime/session/session.h"

enum { APR_SPEED_MOST_RUNS = 100 };

typedef struct apr_speed_options {
    int64_t n_prompt, n_tokens;                         /* of the prompt; decoded behind it, one at a time. Either may be 0 */
    int n_runs;                                         /* 1 to APR_SPEED_MOST_RUNS */
    uint64_t seed;                                      /* of the ids */
    void (*on_run)(void *user, int n_done, int n_runs); /* may be NULL; also after the first, unmeasured one, with 0 */
    void *user;
} apr_speed_options;

typedef struct apr_speed {
    int n_runs;
    double prompt_s[APR_SPEED_MOST_RUNS], decode_s[APR_SPEED_MOST_RUNS]; /* [n_runs] of all tokens of the run */
    bool finite;                                                         /* all logits that were looked at: the last row of each stage */
} apr_speed;

/* Resets the session. APR_E_USAGE: nothing to measure, or more than the context holds. */
apr_status apr_speed_measure(apr_session *session, const apr_speed_options *options, apr_speed *speed, apr_error *err);

/* Median, least and most of n values. */
typedef struct apr_spread {
    double median, low, high;
} apr_spread;
/* tokens / seconds[i], of n runs; zeros for 0 tokens. */
apr_spread apr_speed_rates(int64_t n_tokens, const double *seconds, int n);

#endif
