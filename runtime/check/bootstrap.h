/* runtime/check/bootstrap.h - 95 % confidence intervals of a divergence, by a bootstrap over windows.
 *
 * Neighbouring positions are correlated; windows are independent, because each begins with an empty KV cache. So each draw takes as many
 * whole windows as there are, with replacement. An interval holds the middle 95 % of the draws' results. The draws depend only on the
 * seed. The intervals do not cover other kinds of text. */
#ifndef APR_RUNTIME_INTERVALS_H
#define APR_RUNTIME_INTERVALS_H

#include "runtime/check/compare.h"

/* Both are NAN if there is only one window, or if a result is NaN. */
typedef struct apr_interval {
    double low, high;
} apr_interval;

typedef struct apr_divergence_intervals {
    apr_interval mean, same_top;
    apr_interval perplexity_reference, perplexity_other;
    apr_interval ratio, difference; /* of the other's perplexity to the reference's, from the same draws */
} apr_divergence_intervals;

enum { APR_BOOTSTRAP_DRAWS = 2000 };

/* The only error is APR_E_MEMORY. */
apr_status apr_divergence_bootstrap(const apr_divergence *d, uint64_t seed, apr_divergence_intervals *intervals, apr_error *err);

#endif
