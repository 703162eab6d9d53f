/* kernels/metrics.h - error metrics between two arrays. All error figures of aprkit come from here.
 *
 * Sums run in double over portions that are added one after another; the same portions in the same order give the same bits. Values that
 * are not finite on either side are counted and left out of the sums. */
#ifndef APR_KERNELS_METRICS_H
#define APR_KERNELS_METRICS_H

#include <stdint.h>

typedef struct apr_metrics {
    int64_t n; /* values compared, non-finite ones included */
    int64_t n_nonfinite;
    double sum_sq_a, sum_sq_b, sum_sq_err, dot; /* of a (the reference), b, a - b, a * b */
    float max_error;                            /* largest |a - b| */
    int64_t max_at;                             /* its index, counted from the first value added; -1: all equal */
} apr_metrics;

/* A zeroed apr_metrics with max_at = -1 is empty. */
apr_metrics apr_metrics_empty(void);
/* a: the reference; b: the values to compare. */
void apr_metrics_add(apr_metrics *metrics, const float *a, const float *b, int64_t n);
/* Appends the metrics of a later portion. */
void apr_metrics_merge(apr_metrics *metrics, const apr_metrics *later);

double apr_metrics_rmse(const apr_metrics *metrics);           /* sqrt(sum err^2 / n) */
double apr_metrics_relative_error(const apr_metrics *metrics); /* sqrt(sum err^2 / sum a^2); 0 when equal, inf when a is 0 */
double apr_metrics_snr_db(const apr_metrics *metrics);         /* 10 log10(sum a^2 / sum err^2); inf when equal */
double apr_metrics_cosine(const apr_metrics *metrics);         /* 1 when both are zero */

#endif
