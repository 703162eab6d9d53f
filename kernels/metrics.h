/* kernels/metrics.h - how far two arrays of the same values are apart. All error figures of the house come from here.
 *
 * Sums run in double over portions added one after another; adding portions in the same order gives the same bits. Values that
 * are not finite on either side are counted and left out of the sums. */
#ifndef APR_KERNELS_METRICS_H
#define APR_KERNELS_METRICS_H

#include <stdint.h>

typedef struct apr_metrics {
    int64_t n; /* values compared, non-finite ones included */
    int64_t n_nonfinite;
    double sum_sq_a, sum_sq_b, sum_sq_err, dot; /* of a (the truth), b, a - b, a * b */
    float max_error;                            /* largest |a - b| */
    int64_t max_at;                             /* its index, counted from the first value added; -1: all equal */
} apr_metrics;

/* A zeroed apr_metrics with max_at = -1 is empty. */
apr_metrics apr_metrics_empty(void);
/* a: the truth; b: what became of it. */
void apr_metrics_add(apr_metrics *metrics, const float *a, const float *b, int64_t n);
/* Appends the figures of a later portion. */
void apr_metrics_merge(apr_metrics *metrics, const apr_metrics *later);

double apr_metrics_rmse(const apr_metrics *metrics);           /* sqrt(sum err^2 / n) */
double apr_metrics_relative_error(const apr_metrics *metrics); /* sqrt(sum err^2 / sum a^2); 0 when equal, inf when a is 0 */
double apr_metrics_snr_db(const apr_metrics *metrics);         /* 10 log10(sum a^2 / sum err^2); inf when equal */
double apr_metrics_cosine(const apr_metrics *metrics);         /* 1 when both are zero */

#endif
