/* bootstrap.c - draws windows, adds them up, and cuts off the outer 2.5 % on each side. */
#include "runtime/check/bootstrap.h"

#include "formats/base/random.h"

#include <math.h>
#include <stdlib.h>

/* Draws n_windows windows with replacement and adds them up. */
static apr_window_sums draw(const apr_divergence *d, uint64_t *state)
{
    apr_window_sums sums = {0};

    for (size_t i = 0; i < d->n_windows; i++) {
        const apr_window_sums *const w = &d->windows[apr_random(state) % d->n_windows];
        sums.kl += w->kl;
        sums.nll_reference += w->nll_reference;
        sums.nll_other += w->nll_other;
        sums.n_rows += w->n_rows;
        sums.n_same_top += w->n_same_top;
        sums.n_scored += w->n_scored;
    }
    return sums;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static apr_interval middle_of(double *values)
{
    const int n = APR_BOOTSTRAP_DRAWS, cut = n / 40; /* 2.5 % */

    for (int i = 0; i < n; i++)
        if (isnan(values[i])) return (apr_interval){NAN, NAN};
    qsort(values, (size_t)n, sizeof *values, by_value);
    return (apr_interval){values[cut], values[n - 1 - cut]};
}

enum { MEAN, SAME_TOP, TRUTH, OTHER, RATIO, DIFFERENCE, N_FIGURES };

apr_status apr_divergence_bootstrap(const apr_divergence *d, uint64_t seed, apr_divergence_intervals *intervals, apr_error *err)
{
    const apr_interval none = {NAN, NAN};
    double *const values = malloc((size_t)N_FIGURES * APR_BOOTSTRAP_DRAWS * sizeof *values);
    uint64_t state = seed;

    *intervals = (apr_divergence_intervals){none, none, none, none, none, none};
    if (values == NULL) return apr_no_memory(err, "the bootstrap");
    for (int i = 0; i < APR_BOOTSTRAP_DRAWS && d->n_windows > 1; i++) {
        const apr_window_sums sums = draw(d, &state);
        const double n = (double)sums.n_rows, scored = (double)sums.n_scored; /* 0 scored gives NaN, as intended */
        const double reference = exp(sums.nll_reference / scored), other = exp(sums.nll_other / scored);
        const double figures[N_FIGURES] = {sums.kl / n, (double)sums.n_same_top / n, reference,
                                           other,       other / reference,           other - reference};
        for (int k = 0; k < N_FIGURES; k++) values[k * APR_BOOTSTRAP_DRAWS + i] = figures[k];
    }
    apr_interval *const places[N_FIGURES] = {
        &intervals->mean,  &intervals->same_top,  &intervals->perplexity_reference, &intervals->perplexity_other,
        &intervals->ratio, &intervals->difference};
    for (int k = 0; k < N_FIGURES && d->n_windows > 1; k++) *places[k] = middle_of(values + k * APR_BOOTSTRAP_DRAWS);
    free(values);
    return APR_OK;
}
