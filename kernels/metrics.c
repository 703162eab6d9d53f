/* metrics.c - sums of squares, and the metrics computed from them. */
#include "kernels/metrics.h"

#include <math.h>

apr_metrics apr_metrics_empty(void) { return (apr_metrics){.max_at = -1}; }

void apr_metrics_add(apr_metrics *m, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) {
            m->n_nonfinite++;
            continue;
        }
        const double x = a[i], y = b[i], error = x - y;
        m->sum_sq_a += x * x;
        m->sum_sq_b += y * y;
        m->sum_sq_err += error * error;
        m->dot += x * y;
        if (fabs(error) > (double)m->max_error) {
            m->max_error = (float)fabs(error);
            m->max_at = m->n + i;
        }
    }
    m->n += n;
}

void apr_metrics_merge(apr_metrics *m, const apr_metrics *later)
{
    if (later->max_error > m->max_error) {
        m->max_error = later->max_error;
        m->max_at = m->n + later->max_at;
    }
    m->n += later->n;
    m->n_nonfinite += later->n_nonfinite;
    m->sum_sq_a += later->sum_sq_a;
    m->sum_sq_b += later->sum_sq_b;
    m->sum_sq_err += later->sum_sq_err;
    m->dot += later->dot;
}

double apr_metrics_rmse(const apr_metrics *m) { return m->n > 0 ? sqrt(m->sum_sq_err / (double)m->n) : 0.0; }

double apr_metrics_relative_error(const apr_metrics *m) { return m->sum_sq_err == 0.0 ? 0.0 : sqrt(m->sum_sq_err / m->sum_sq_a); }

double apr_metrics_snr_db(const apr_metrics *m) { return m->sum_sq_err == 0.0 ? INFINITY : 10.0 * log10(m->sum_sq_a / m->sum_sq_err); }

double apr_metrics_cosine(const apr_metrics *m)
{
    const double norms = sqrt(m->sum_sq_a) * sqrt(m->sum_sq_b);
    if (norms == 0.0) return m->sum_sq_a == m->sum_sq_b ? 1.0 : 0.0;
    return m->dot / norms;
}
