/* pipe_remark.c - prints the results of a tensor for a later run; floats in hexadecimal, so they are exact. */
#include "convert/pipe_internal.h"

#include <inttypes.h>
#include <stdio.h>

void apr_pipe_remark(const apr_pipe_item *item, char remark[APR_REMARK_BYTES])
{
    const apr_metrics *const m = &item->metrics;

    snprintf(remark, APR_REMARK_BYTES,
             "%d %" PRId64 " %" PRId64 " %a %" PRId64 " %" PRId64 " %" PRId64 " %a %" PRId64 " %" PRId64 " %a %a %a %a %a %" PRId64,
             item->on_device, item->misfits.n_unusual, item->misfits.n_beyond, (double)item->misfits.worst, item->n_different,
             item->n_rounded, item->n_off, item->worst_difference, m->n, m->n_nonfinite, m->sum_sq_a, m->sum_sq_b, m->sum_sq_err, m->dot,
             (double)m->max_error, m->max_at);
}

void apr_pipe_recall(apr_pipe_item *item, const char *remark)
{
    apr_pipe_item was = *item;
    apr_metrics *const m = &was.metrics;
    int on_device;

    const int n = sscanf(
        remark, "%d %" SCNd64 " %" SCNd64 " %a %" SCNd64 " %" SCNd64 " %" SCNd64 " %la %" SCNd64 " %" SCNd64 " %la %la %la %la %a %" SCNd64,
        &on_device, &was.misfits.n_unusual, &was.misfits.n_beyond, &was.misfits.worst, &was.n_different, &was.n_rounded, &was.n_off,
        &was.worst_difference, &m->n, &m->n_nonfinite, &m->sum_sq_a, &m->sum_sq_b, &m->sum_sq_err, &m->dot, &m->max_error, &m->max_at);
    if (n != 16) return;
    was.on_device = on_device != 0;
    *item = was;
}
