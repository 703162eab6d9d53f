/* chart.c - curves, pairs of bars, legends. */
#include "tools/report/chart.h"

#include "tools/report/html.h"
#include "tools/report/plot.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdarg.h>

void apr_chart_finding(FILE *out, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    apr_html_print(out, "<b class=\"finding\">%s</b>\n", text);
}

void apr_chart_legend(FILE *out, const apr_legend *parts, size_t n)
{
    static const char *const styles[] = {"background:var(--%s)", "border:1.5px solid var(--%s)",
                                         "background:var(--%s);height:2px;vertical-align:4px"};
    char style[96];

    fputs("<div class=\"legend\">", out);
    for (size_t i = 0; i < n; i++) {
        snprintf(style, sizeof style, styles[parts[i].form], parts[i].colour);
        apr_html_print(out, "<span><i style=\"%s\"></i>%s</span>", style, parts[i].name);
    }
    fputs("</div>\n", out);
}

/* --- curves --- */

/* Room at both ends of the x axis, so that points do not touch the axes. */
static double curve_x(const apr_plot *p, const apr_curves *c, size_t i)
{
    const double first = (double)c->at[0], last = (double)c->at[c->n_points - 1], at = (double)c->at[i], room = p->is_narrow ? 12 : 28;

    if (last <= first) return 0.5 * (p->left + p->right);
    const double part = c->by_ratio ? (log(at) - log(first)) / (log(last) - log(first)) : (at - first) / (last - first);
    return p->left + room + (p->right - p->left - 2.0 * room) * part;
}

static double largest_value(const apr_curves *c)
{
    double largest = 0.0;

    for (size_t k = 0; k < c->n_curves; k++)
        for (size_t i = 0; i < c->n_points; i++)
            if (isfinite(c->curves[k].values[i])) largest = fmax(largest, c->curves[k].values[i]);
    return largest;
}

/* Decimals that show the largest value with four digits; so all values of a curve have the same. */
static int decimals_of(const apr_curve *curve, size_t n)
{
    double largest = 0.0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(curve->values[i])) largest = fmax(largest, curve->values[i]);
    return apr_decimals_of(largest, 4);
}

static void draw_point(const apr_plot *p, const apr_curves *c, const apr_curve *curve, size_t i, const char *colour)
{
    const double x = curve_x(p, c, i), y = apr_plot_y(p, curve->values[i]);
    char at[APR_SMALL_TEXT], value[APR_SMALL_TEXT];

    if (curve->low != NULL && curve->high != NULL)
        fprintf(p->out, "<line class=\"line-%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", colour, x, x,
                apr_plot_y(p, curve->low[i]), apr_plot_y(p, curve->high[i]));
    apr_count_text(at, c->at[i]);
    apr_number_text(value, curve->values[i], decimals_of(curve, c->n_points));
    apr_html_print(p->out, "<circle class=\"fill-%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>%s, %s: %s %s</title></circle>\n", colour, x,
                   y, curve->name, at, value, c->unit);
}

/* The values over the points of a curve, right of the numbers of the y axis; one that would touch the previous one is left out. */
static void draw_values(const apr_plot *p, const apr_curves *c, const apr_curve *curve)
{
    char value[APR_SMALL_TEXT];
    double end = -1.0;

    for (size_t i = 0; i < c->n_points; i++) {
        apr_number_text(value, curve->values[i], decimals_of(curve, c->n_points));
        const double half = apr_plot_text_width(value) / 2.0, x = fmax(curve_x(p, c, i), p->left + half);
        if (x - half < end + 4.0) continue;
        apr_plot_text(p, x, apr_plot_y(p, curve->values[i]) - 8, APR_TEXT_MIDDLE, "ink halo", value);
        end = x + half;
    }
}

static void draw_curves(apr_plot *p, const void *of)
{
    static const char *const colours[APR_CHART_MAX_CURVES] = {"one", "two"};
    const apr_curves *const c = of;
    char text[APR_SMALL_TEXT];
    double end = -1.0;

    p->top += 10; /* for the values over the highest points */
    p->y = apr_axis_linear(c->unit, largest_value(c), 6);
    p->x = (apr_axis){.title = c->across, .is_log = c->by_ratio};
    apr_plot_axes(p);
    for (size_t i = 0; i < c->n_points; i++) apr_plot_under(p, curve_x(p, c, i), apr_count_text(text, c->at[i]), &end);
    for (size_t k = 0; k < c->n_curves; k++) {
        fprintf(p->out, "<polyline class=\"line-%s\" points=\"", colours[k % APR_CHART_MAX_CURVES]);
        for (size_t i = 0; i < c->n_points; i++) fprintf(p->out, "%.1f,%.1f ", curve_x(p, c, i), apr_plot_y(p, c->curves[k].values[i]));
        fputs("\"/>\n", p->out);
        for (size_t i = 0; i < c->n_points; i++) draw_point(p, c, &c->curves[k], i, colours[k % APR_CHART_MAX_CURVES]);
    }
    if (c->n_curves == 1) draw_values(p, c, &c->curves[0]);
}

/* x, and for each curve its values with their range. */
static void write_values(FILE *out, const apr_curves *c)
{
    apr_column columns[1 + 3 * APR_CHART_MAX_CURVES];
    apr_table table;
    char text[APR_SMALL_TEXT];
    size_t n = 0;

    columns[n++] = (apr_column){c->across, true};
    for (size_t k = 0; k < c->n_curves; k++) {
        columns[n++] = (apr_column){c->n_curves > 1 ? c->curves[k].name : c->unit, true};
        if (c->curves[k].low == NULL) continue;
        columns[n++] = (apr_column){"lowest", true};
        columns[n++] = (apr_column){"highest", true};
    }
    apr_table_start(&table, columns, n);
    for (size_t i = 0; i < c->n_points; i++) {
        apr_table_cell(&table, "%s", apr_count_text(text, c->at[i]));
        for (size_t k = 0; k < c->n_curves; k++) {
            const apr_curve *const curve = &c->curves[k];
            const int decimals = decimals_of(curve, c->n_points);
            apr_table_cell(&table, "%s", apr_number_text(text, curve->values[i], decimals));
            if (curve->low == NULL) continue;
            apr_table_cell(&table, "%s", apr_number_text(text, curve->low[i], decimals));
            apr_table_cell(&table, "%s", apr_number_text(text, curve->high[i], decimals));
        }
    }
    apr_html_values(out, &table);
}

void apr_chart_curves(FILE *out, const apr_curves *curves)
{
    if (curves->n_points == 0) return;
    apr_plot_twice(out, curves->label, 290, 260, draw_curves, curves);
    write_values(out, curves);
}

/* --- bars --- */

typedef struct bars {
    const apr_bar *bars;
    size_t n;
    double longest;
    bool has_two_lines; /* on a narrow screen some name and text do not fit on one line */
} bars;

enum { WIDE_ROW = 34, NARROW_ROW = 46, NARROW_LINE = 17 };

static void draw_bar(const apr_plot *p, const apr_bar *bar, double scale, double y)
{
    if (bar->filled > 0.0)
        fprintf(p->out, "<rect class=\"fill-one\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" rx=\"2\"/>\n", p->left, y + 4,
                fmax(bar->filled * scale, 1.0));
    if (bar->hollow > 0.0)
        fprintf(p->out, "<rect class=\"hollow\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\" rx=\"3\"/>\n", p->left, y,
                fmax(bar->hollow * scale, 1.0));
}

static void draw_wide_bars(apr_plot *p, const bars *b)
{
    p->left = 250;
    p->right = 660;
    for (size_t i = 0; i < b->n; i++) {
        const double y = WIDE_ROW * (double)i + 7, scale = (p->right - p->left) / b->longest;
        apr_plot_text(p, p->left - 12, y + 14, APR_TEXT_END, "ink", b->bars[i].name);
        draw_bar(p, &b->bars[i], scale, y);
        apr_plot_text(p, p->left + fmax(b->bars[i].hollow, b->bars[i].filled) * scale + 12, y + 14, APR_TEXT_START, "", b->bars[i].text);
    }
}

/* The name and the text over each bar. */
static void draw_narrow_bars(apr_plot *p, const bars *b)
{
    p->left = 2;
    p->right = p->width - 2;
    for (size_t i = 0; i < b->n; i++) {
        const double y = (NARROW_ROW + (b->has_two_lines ? NARROW_LINE : 0)) * (double)i;
        apr_plot_text(p, p->left, y + 14, APR_TEXT_START, "ink", b->bars[i].name);
        if (b->has_two_lines) apr_plot_text(p, p->left, y + 14 + NARROW_LINE, APR_TEXT_START, "", b->bars[i].text);
        else apr_plot_text(p, p->right, y + 14, APR_TEXT_END, "", b->bars[i].text);
        draw_bar(p, &b->bars[i], (p->right - p->left) / b->longest, y + 20 + (b->has_two_lines ? NARROW_LINE : 0));
    }
}

static void draw_bars(apr_plot *p, const void *of) { (p->is_narrow ? draw_narrow_bars : draw_wide_bars)(p, of); }

void apr_chart_bars(FILE *out, const char *label, const apr_bar *all, size_t n)
{
    bars b = {.bars = all, .n = n, .longest = 1e-300};

    for (size_t i = 0; i < n; i++) {
        b.longest = fmax(b.longest, fmax(all[i].hollow, all[i].filled));
        b.has_two_lines |= apr_plot_text_width(all[i].name) + apr_plot_text_width(all[i].text) + 20 > APR_PLOT_NARROW;
    }
    apr_plot_twice(out, label, WIDE_ROW * (double)n + 4, (NARROW_ROW + (b.has_two_lines ? NARROW_LINE : 0)) * (double)n, draw_bars, &b);
}
