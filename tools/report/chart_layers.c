/* chart_layers.c - errors by layer: bars for what a layer alone does, a line for what adds up. */
#include "tools/report/chart.h"

#include "tools/report/html.h"
#include "tools/report/plot.h"
#include "tools/report/text.h"

#include <math.h>

static void span_of(const double *values, int64_t n, double *smallest, double *largest)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] <= 0.0) continue;
        *smallest = fmin(*smallest, values[i]);
        *largest = fmax(*largest, values[i]);
    }
}

/* Column 0: embeddings and head, whose errors are counted together. Then the layers. */
static double bar_of(const apr_layers *l, int64_t column) { return l->bars[column == 0 ? l->n_layers : column - 1]; }

static const char *column_name(char text[APR_SMALL_TEXT], int64_t column)
{
    if (column == 0) return "ends";
    snprintf(text, APR_SMALL_TEXT, "%lld", (long long)column - 1);
    return text;
}

static size_t points_of_line(const apr_layers *l)
{
    const size_t most = (size_t)l->n_layers + 1;
    return l->line == NULL ? 0 : l->n_line < most ? l->n_line : most;
}

static void draw_line(const apr_plot *p, const apr_layers *l, double step)
{
    const size_t n = points_of_line(l);
    char text[APR_SMALL_TEXT];

    if (n == 0) return;
    fputs("<polyline class=\"line-two\" points=\"", p->out);
    for (size_t i = 0; i < n; i++) fprintf(p->out, "%.1f,%.1f ", p->left + step * ((double)i + 0.5), apr_plot_y(p, l->line[i]));
    fputs("\"/>\n", p->out);
    for (size_t i = 0; i < n; i++)
        apr_html_print(p->out, "<circle class=\"fill-two\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>%s: %s</title></circle>\n",
                       p->left + step * ((double)i + 0.5), apr_plot_y(p, l->line[i]), fmin(3.2, 0.45 * step), l->line_name,
                       apr_number_text(text, l->line[i], apr_decimals_of(l->line[i], 3)));
}

static void draw_column(const apr_plot *p, const apr_layers *l, double step, int64_t column)
{
    const double value = bar_of(l, column), y = apr_plot_y(p, value), x = p->left + step * ((double)column + 0.5),
                 wide = fmin(0.62 * step, 64.0);
    char text[APR_SMALL_TEXT];

    if (value == 0.0) return;
    apr_number_text(text, value, apr_decimals_of(value, 2));
    fprintf(p->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\"><title>%s</title></rect>\n",
            isfinite(value) ? "fill-one" : "fill-fail", x - wide / 2, y, wide, p->bottom - y, fmin(2.0, wide / 4), text);
    if (wide >= apr_plot_text_width(text) && p->bottom - y > 20) apr_plot_text(p, x, p->bottom - 7, APR_TEXT_MIDDLE, "on-bar", text);
}

/* The names under the axis: all of them, or each 2nd, 5th, 10th ... as many as fit. */
static void draw_names(const apr_plot *p, const apr_layers *l, double step)
{
    static const int64_t steps[] = {1, 2, 5, 10, 20, 50};
    const double widest = apr_plot_text_width(l->n_layers > 100 ? "100" : "10") + 10.0;
    size_t every = 0;
    double end = -1.0;
    char text[APR_SMALL_TEXT];

    while (every + 1 < sizeof steps / sizeof *steps && step * (double)steps[every] < widest) every++;
    apr_plot_under(p, p->left + step * 0.5, column_name(text, 0), &end);
    for (int64_t c = 1; c <= l->n_layers; c += steps[every])
        apr_plot_under(p, p->left + step * ((double)c + 0.5), column_name(text, c), &end);
}

static void draw_layers(apr_plot *p, const void *of)
{
    const apr_layers *const l = of;
    double smallest = INFINITY, largest = 0.0;

    span_of(l->bars, l->n_layers + 1, &smallest, &largest);
    span_of(l->line, (int64_t)points_of_line(l), &smallest, &largest);
    p->y = apr_axis_decades(l->unit, smallest * 0.5, largest, p->is_narrow ? 6 : 7);
    p->x = (apr_axis){.title = p->is_narrow ? "layer (ends: embeddings, head)" : "layer (ends: embeddings and output head)"};
    apr_plot_axes(p);
    const double step = (p->right - p->left) / (double)(l->n_layers + 1);
    for (int64_t c = 0; c <= l->n_layers; c++) draw_column(p, l, step, c);
    draw_line(p, l, step);
    draw_names(p, l, step);
}

static void write_values(FILE *out, const apr_layers *l)
{
    const apr_column columns[] = {{"layer"}, {l->bars_name, true}, {l->line_name, true}};
    const size_t n_points = points_of_line(l);
    double smallest = INFINITY, largest[2] = {0.0, 0.0};
    char text[APR_SMALL_TEXT];
    apr_table table;

    span_of(l->bars, l->n_layers + 1, &smallest, &largest[0]);
    span_of(l->line, (int64_t)n_points, &smallest, &largest[1]);
    apr_table_start(&table, columns, n_points > 0 ? 3 : 2);
    for (int64_t c = 0; c <= l->n_layers; c++) {
        apr_table_cell(&table, "%s", column_name(text, c));
        apr_table_cell(&table, "%s", apr_number_text(text, bar_of(l, c), apr_decimals_of(largest[0], 3)));
        if (n_points == 0) continue;
        if ((size_t)c < n_points) apr_table_cell(&table, "%s", apr_number_text(text, l->line[c], apr_decimals_of(largest[1], 3)));
        else apr_table_cell(&table, "%s", "");
    }
    apr_html_values(out, &table);
}

static void write_finding(FILE *out, const apr_layers *l)
{
    int64_t worst = 0;
    char name[APR_SMALL_TEXT], value[APR_SMALL_TEXT];

    for (int64_t c = 1; c <= l->n_layers; c++)
        if (!isfinite(bar_of(l, c)) || bar_of(l, c) > bar_of(l, worst)) worst = c;
    apr_number_text(value, bar_of(l, worst), apr_decimals_of(bar_of(l, worst), 2));
    if (bar_of(l, worst) == 0.0) apr_chart_finding(out, "No layer alone changes its output");
    else if (worst == 0) apr_chart_finding(out, "The largest error is at the ends, embeddings and output head: %s", value);
    else apr_chart_finding(out, "The largest error is in layer %s: %s", column_name(name, worst), value);
}

void apr_chart_layers(FILE *out, const apr_layers *l)
{
    const apr_legend legend[] = {{"one", l->bars_name, APR_LEGEND_FILLED}, {"two", l->line_name, APR_LEGEND_FILLED}};
    double smallest = INFINITY, largest = 0.0;
    bool any = false;

    for (int64_t i = 0; i <= l->n_layers; i++) any |= l->bars[i] != 0.0;
    span_of(l->line, (int64_t)points_of_line(l), &smallest, &largest);
    if (!any && largest == 0.0) {
        fputs("<p class=\"soft\">No difference in any layer: the same numbers.</p>\n", out);
        return;
    }
    write_finding(out, l);
    if (points_of_line(l) > 0) apr_chart_legend(out, legend, 2);
    apr_plot_twice(out, l->label, 270, 240, draw_layers, l);
    write_values(out, l);
}
