/* runtime/check/intervals.h - how much of a divergence is the text's doing: intervals by the bootstrap over windows.
 *
 * Neighbouring positions are alike, windows are not (each begins from nothing): so whole windows are drawn, with replacement, as many
 * as there are, again and again, and an interval holds the middle 95 % of what the draws come to. The draws follow from the seed
 * alone. What the truth would be on another kind of text, no interval says. */
#ifndef APR_RUNTIME_INTERVALS_H
#define APR_RUNTIME_INTERVALS_H

#include "runtime/check/compare.h"

/* NAN, both: there is one window, or a figure is no number. */
typedef struct apr_interval {
    double low, high;
} apr_interval;

typedef struct apr_divergence_intervals {
    apr_interval mean, same_top;
    apr_interval perplexity_truth, perplexity_other;
    apr_interval ratio, difference; /* of the other's perplexity to the truth's, drawn in pairs */
} apr_divergence_intervals;

enum { APR_BOOTSTRAP_DRAWS = 2000 };

/* APR_E_MEMORY, nothing else. */
apr_status apr_divergence_bootstrap(const apr_divergence *d, uint64_t seed, apr_divergence_intervals *intervals, apr_error *err);

#endif
