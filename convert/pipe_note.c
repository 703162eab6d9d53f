/* pipe_note.c - prints the results of a tensor for a later run; floats in hexadecimal, so they are exact. */
#include "convert/pipe_internal.h"

#include <inttypes.h>
#include <stdio.h>

void apr_pipe_write_note(const apr_pipe_item *item, char note[APR_NOTE_BYTES])
{
    const apr_metrics *const m = &item->metrics;

    snprintf(note, APR_NOTE_BYTES,
             "%d %" PRId64 " %" PRId64 " %a %" PRId64 " %" PRId64 " %" PRId64 " %a %" PRId64 " %" PRId64 " %a %a %a %a %a %" PRId64,
             item->on_device, item->out_of_range.n_nonfinite, item->out_of_range.n_out_of_range, (double)item->out_of_range.worst,
             item->n_different, item->n_rounded, item->n_off, item->worst_difference, m->n, m->n_nonfinite, m->sum_sq_a, m->sum_sq_b,
             m->sum_sq_err, m->dot, (double)m->max_error, m->max_at);
}

void apr_pipe_read_note(apr_pipe_item *item, const char *note)
{
    apr_pipe_item was = *item;
    apr_metrics *const m = &was.metrics;
    int on_device;

    const int n = sscanf(
        note, "%d %" SCNd64 " %" SCNd64 " %a %" SCNd64 " %" SCNd64 " %" SCNd64 " %la %" SCNd64 " %" SCNd64 " %la %la %la %la %a %" SCNd64,
        &on_device, &was.out_of_range.n_nonfinite, &was.out_of_range.n_out_of_range, &was.out_of_range.worst, &was.n_different,
        &was.n_rounded, &was.n_off, &was.worst_difference, &m->n, &m->n_nonfinite, &m->sum_sq_a, &m->sum_sq_b, &m->sum_sq_err, &m->dot,
        &m->max_error, &m->max_at);
    if (n != 16) return;
    was.on_device = on_device != 0;
    *item = was;
}
