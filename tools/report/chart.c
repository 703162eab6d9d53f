/* chart.c - the frame of a chart, round axis marks, and line charts. */
#include "tools/report/chart.h"

#include "tools/report/text.h"

#include <math.h>
#include <stdbool.h>

void apr_chart_open(FILE *out, double width, double height, const char *label)
{
    fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", width, height, label);
}

double apr_chart_step(double largest, int most)
{
    static const double round[] = {1.0, 2.0, 5.0, 10.0};
    size_t i = 0;

    if (!(largest > 0.0) || !isfinite(largest)) return 1.0;
    const double decade = pow(10.0, floor(log10(largest / most)));
    while (i < 3 && largest / (round[i] * decade) > most) i++;
    return round[i] * decade;
}

/* The plot area in SVG units, and the y axis. */
typedef struct frame {
    const apr_curves *of;
    double left, right, top, bottom;
    double step, highest; /* of the y axis: step between marks, and the last mark */
} frame;

static double x_of(const frame *f, size_t i)
{
    const apr_curves *const c = f->of;
    const double first = (double)c->at[0], last = (double)c->at[c->n_points - 1], at = (double)c->at[i];

    if (last <= first) return 0.5 * (f->left + f->right);
    const double part = c->by_ratio ? (log(at) - log(first)) / (log(last) - log(first)) : (at - first) / (last - first);
    return f->left + 28 + (f->right - f->left - 56) * part;
}

static double y_of(const frame *f, double value) { return f->bottom - (f->bottom - f->top) * fmin(value / f->highest, 1.0); }

static frame frame_of(const apr_curves *c)
{
    frame f = {.of = c, .left = 64, .right = 940, .top = 30, .bottom = 236};
    double largest = 0.0;

    for (size_t k = 0; k < c->n_curves; k++)
        for (size_t i = 0; i < c->n_points; i++) {
            const double value = c->curves[k].high != NULL ? c->curves[k].high[i] : c->curves[k].values[i];
            if (isfinite(value)) largest = fmax(largest, value);
        }
    f.step = apr_chart_step(largest, 6);
    f.highest = f.step * fmax(ceil(largest / f.step), 1.0);
    return f;
}

/* "17,240", "1.234", "0.00012": four significant digits; no exponent between 1e-6 and 1e12 */
static char *figure_text(char text[APR_SMALL_TEXT], double value)
{
    const double magnitude = value < 0 ? -value : value;

    if (magnitude >= 9999.5 && magnitude < 1e12) {
        double unit = 1.0;
        while (magnitude / unit >= 9999.5) unit *= 10.0;
        return apr_count_text(text, (int64_t)(value / unit + (value < 0 ? -0.5 : 0.5)) * (int64_t)unit);
    }
    if (magnitude >= 1e-6 && magnitude < 1e-4) snprintf(text, APR_SMALL_TEXT, "%.7f", value);
    else snprintf(text, APR_SMALL_TEXT, "%.4g", value);
    return text;
}

/* Axis marks are round numbers: all digits are printed. */
static const char *mark_text(char text[APR_SMALL_TEXT], double value)
{
    if (value >= 1e4) return figure_text(text, value);
    snprintf(text, APR_SMALL_TEXT, "%.6g", value);
    return text;
}

static void draw_axes(FILE *out, const frame *f)
{
    const apr_curves *const c = f->of;
    const int n_marks = (int)lround(f->highest / f->step);
    double last = -1e9;
    char mark[APR_SMALL_TEXT];

    for (int i = 0; i <= n_marks; i++) {
        const double y = y_of(f, f->step * i);
        fprintf(out, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", i == 0 ? "axis" : "grid", f->left, f->right, y,
                y);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", f->left - 8, y + 4, mark_text(mark, f->step * i));
    }
    for (size_t i = 0; i < c->n_points; i++) {
        if (x_of(f, i) < last + 36) continue; /* would touch the previous number */
        last = x_of(f, i);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%lld</text>\n", last, f->bottom + 18, (long long)c->at[i]);
    }
    fprintf(out, "<text x=\"%.1f\" y=\"14\">%s</text>\n<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", f->left - 8, c->unit,
            f->right, f->bottom + 34, c->across);
}

static void draw_curve(FILE *out, const frame *f, size_t k)
{
    static const char *const colours[APR_CHART_MAX_CURVES] = {"one", "two"};
    const apr_curves *const c = f->of;
    const apr_curve *const curve = &c->curves[k];
    const char *const colour = colours[k % APR_CHART_MAX_CURVES];

    fprintf(out, "<polyline class=\"line-%s\" points=\"", colour);
    for (size_t i = 0; i < c->n_points; i++) fprintf(out, "%.1f,%.1f ", x_of(f, i), y_of(f, curve->values[i]));
    fputs("\"/>\n", out);
    for (size_t i = 0; i < c->n_points; i++) {
        const double x = x_of(f, i), y = y_of(f, curve->values[i]);
        const bool at_edge = x > f->right - 60; /* a long number would be cut off at the chart's edge */
        char figure[APR_SMALL_TEXT];
        if (curve->low != NULL && curve->high != NULL)
            fprintf(out, "<line class=\"line-%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", colour, x, x, y_of(f, curve->low[i]),
                    y_of(f, curve->high[i]));
        fprintf(out, "<circle class=\"fill-%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>%s, %lld: %s %s</title></circle>\n", colour, x, y,
                curve->name, (long long)c->at[i], figure_text(figure, curve->values[i]), c->unit);
        if (c->n_curves == 1)
            fprintf(out, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\"%s>%s</text>\n", at_edge ? x + 20 : x + 7, y - 7,
                    at_edge ? " text-anchor=\"end\"" : "", figure);
    }
}

void apr_chart_curves(FILE *out, const apr_curves *curves)
{
    if (curves->n_points == 0) return;
    const frame f = frame_of(curves);

    apr_chart_open(out, 960, 276, curves->label);
    draw_axes(out, &f);
    for (size_t k = 0; k < curves->n_curves; k++) draw_curve(out, &f, k);
    fputs("</svg>\n", out);
}
