/* verify_chart.c - the chart of a divergence along a text. */
#include "tools/report/chart.h"
#include "tools/report/html.h"
#include "tools/report/plot.h"
#include "tools/report/text.h"
#include "tools/verbs/check/verify.h"

#include <math.h>
#include <stdlib.h>

typedef struct bin {
    double mean, high;
    int64_t first, last;
} bin;

enum { WIDE_BINS = 240, NARROW_BINS = 80, TABLE_BINS = 40 };

static size_t make_bins(const apr_divergence *d, size_t most, bin *bins)
{
    const size_t n = d->n_rows < (int64_t)most ? (size_t)d->n_rows : most;

    for (size_t b = 0; b < n; b++) {
        const int64_t first = d->n_rows * (int64_t)b / (int64_t)n, last = d->n_rows * ((int64_t)b + 1) / (int64_t)n;
        bins[b] = (bin){.first = first, .last = last - 1};
        for (int64_t i = first; i < last; i++) {
            const double kl = isfinite(d->kl[i]) ? (double)d->kl[i] : INFINITY;
            bins[b].mean += kl / (double)(last - first);
            bins[b].high = fmax(bins[b].high, kl);
        }
    }
    return n;
}

static void draw_bins(const apr_plot *p, const bin *bins, size_t n)
{
    const double step = (p->right - p->left) / (double)n;

    for (size_t b = 0; b < n; b++) {
        const double top = apr_plot_y(p, bins[b].high), bottom = apr_plot_y(p, bins[b].mean);
        fprintf(p->out, "<rect class=\"fill-soft\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1\"/>\n",
                p->left + step * (double)b, top, fmax(step - 0.6, 0.6), fmax(bottom - top, 1.0));
    }
    fputs("<polyline class=\"line-one\" points=\"", p->out);
    for (size_t b = 0; b < n; b++) fprintf(p->out, "%.1f,%.1f ", p->left + step * ((double)b + 0.5), apr_plot_y(p, bins[b].mean));
    fputs("\"/>\n", p->out);
}

static void draw_divergence(apr_plot *p, const void *of)
{
    const apr_verify_text_result *const t = of;
    bin bins[WIDE_BINS];
    const size_t n = make_bins(&t->d, p->is_narrow ? NARROW_BINS : WIDE_BINS, bins);
    const double largest = isfinite(t->d.largest) ? fmax(t->d.largest, isnan(t->bound) ? 0.0 : t->bound) : 100.0;
    double smallest = INFINITY;

    for (size_t b = 0; b < n; b++)
        if (bins[b].mean > 0.0) smallest = fmin(smallest, bins[b].mean);
    p->y = apr_axis_decades("KL divergence, nats", smallest, largest, 6);
    p->x = (apr_axis){.title = "token of the text", .high = (double)t->d.n_rows};
    p->x.step = fmax(apr_axis_step(p->x.high, p->is_narrow ? 5 : 10), 1.0);
    apr_plot_axes(p);
    apr_plot_x_marks(p);
    draw_bins(p, bins, n);
    if (!isnan(t->bound)) apr_plot_bound(p, t->bound, "limit of the mean");
}

static void write_values(FILE *out, const apr_divergence *d)
{
    static const apr_column columns[] = {{"tokens"}, {"mean, nats", true}, {"largest, nats", true}};
    bin bins[TABLE_BINS];
    char text[2][APR_SMALL_TEXT];
    apr_table table;

    apr_table_start(&table, columns, 3);
    for (size_t i = 0, n = make_bins(d, TABLE_BINS, bins); i < n; i++) {
        const int decimals = apr_decimals_of(d->largest, 4);
        apr_table_cell(&table, "%s to %s", apr_count_text(text[0], bins[i].first), apr_count_text(text[1], bins[i].last));
        apr_table_cell(&table, "%s", apr_number_text(text[0], bins[i].mean, decimals));
        apr_table_cell(&table, "%s", apr_number_text(text[0], bins[i].high, decimals));
    }
    apr_html_values(out, &table);
}

void apr_verify_divergence_html(FILE *out, const apr_verify_text_result *t)
{
    static const apr_legend legend[] = {{"one", "mean", APR_LEGEND_FILLED},
                                        {"one-soft", "up to the largest", APR_LEGEND_FILLED},
                                        {"fail", "limit of the mean", APR_LEGEND_LINE}};
    char text[2][APR_SMALL_TEXT];

    if (t->d.largest == 0.0) {
        apr_chart_finding(out, "%s: no difference at any of %s positions", t->name, apr_count_text(text[0], t->d.n_rows));
        return;
    }
    if (isnan(t->d.largest)) {
        apr_chart_finding(out, "%s: logits that are not finite, first after token %s", t->name, apr_count_text(text[0], t->d.largest_at));
        return;
    }
    apr_chart_finding(out, "%s: %s nats on average%s; the largest, %s, is after token %lld", t->name,
                      apr_number_text(text[0], t->d.mean, apr_decimals_of(t->d.mean, 3)),
                      isnan(t->bound)         ? ""
                      : t->d.mean <= t->bound ? ", within the limit"
                                              : ", over the limit",
                      apr_number_text(text[1], t->d.largest, apr_decimals_of(t->d.largest, 3)), (long long)t->d.largest_at);
    apr_chart_legend(out, legend, isnan(t->bound) ? 2 : 3);
    apr_plot_twice(out, "KL divergence by position", 290, 260, draw_divergence, t);
    write_values(out, &t->d);
}
