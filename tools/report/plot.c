/* plot.c - axes, texts and the two widths of charts. */
#include "tools/report/plot.h"

#include "tools/report/html.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- axes --- */

enum { MARK_GAP = 6 }; /* between the numbers of the y axis and the area */

double apr_axis_step(double largest, int most)
{
    static const double round[] = {1.0, 2.0, 5.0, 10.0};
    size_t i = 0;

    if (!(largest > 0.0) || !isfinite(largest)) return 1.0;
    const double decade = pow(10.0, floor(log10(largest / most)));
    while (i < 3 && largest / (round[i] * decade) > most) i++;
    return round[i] * decade;
}

apr_axis apr_axis_linear(const char *title, double largest, int most)
{
    const double step = apr_axis_step(largest, most), last = isfinite(largest) ? ceil(largest / step - 1e-9) : 1.0;
    return (apr_axis){.title = title, .high = step * fmax(last, 1.0), .step = step};
}

apr_axis apr_axis_decades(const char *title, double smallest, double largest, int most)
{
    apr_axis axis = {.title = title, .step = 1.0, .is_log = true};

    axis.high = largest > 0.0 && isfinite(largest) ? ceil(log10(largest) + 0.02) : 1.0;
    axis.low = smallest > 0.0 && smallest < largest ? floor(log10(smallest)) : axis.high - 1.0;
    axis.low = fmin(fmax(axis.low, axis.high - most), axis.high - 1.0);
    return axis;
}

/* 0 to 1 along the axis. */
static double part_of(const apr_axis *axis, double value)
{
    if (!isfinite(value)) return 1.0;
    const double at = !axis->is_log ? value : value > 0.0 ? log10(value) : axis->low;
    return fmin(fmax((at - axis->low) / (axis->high - axis->low), 0.0), 1.0);
}

double apr_plot_x(const apr_plot *p, double value) { return p->left + (p->right - p->left) * part_of(&p->x, value); }
double apr_plot_y(const apr_plot *p, double value) { return p->bottom - (p->bottom - p->top) * part_of(&p->y, value); }

/* "0.001", "10,000,000"; smaller powers of ten as "10⁻⁵" */
static const char *decade_text(char text[APR_SMALL_TEXT], int decade)
{
    static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    const int size = abs(decade);

    if (decade >= -3 && decade <= 9) return apr_number_text(text, pow(10.0, decade), decade < 0 ? -decade : 0);
    snprintf(text, APR_SMALL_TEXT, "10%s%s%s", decade < 0 ? "⁻" : "", size >= 10 ? digits[size / 10 % 10] : "", digits[size % 10]);
    return text;
}

static const char *mark_text(char text[APR_SMALL_TEXT], const apr_axis *axis, double at)
{
    if (axis->is_log) return decade_text(text, (int)lround(at));
    return apr_number_text(text, at, apr_decimals_of(axis->step, 1));
}

static double mark_value(const apr_axis *axis, double at) { return axis->is_log ? pow(10.0, at) : at; }

static void write_title(const apr_plot *p, const apr_axis *axis, double x, double y, apr_text_anchor anchor)
{
    char text[160];

    if (axis->title == NULL) return;
    snprintf(text, sizeof text, "%s%s", axis->title, axis->is_log ? " (log)" : "");
    apr_plot_text(p, x, y, anchor, "", text);
}

void apr_plot_axes(apr_plot *p)
{
    const int n = (int)lround((p->y.high - p->y.low) / p->y.step);
    char text[APR_SMALL_TEXT];

    for (int i = 0; i <= n; i++)
        p->left = fmax(p->left, apr_plot_text_width(mark_text(text, &p->y, p->y.low + p->y.step * i)) + MARK_GAP + 2);
    for (int i = 0; i <= n; i++) {
        const double at = p->y.low + p->y.step * i, y = apr_plot_y(p, mark_value(&p->y, at));
        fprintf(p->out, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", i == 0 ? "axis" : "grid", p->left, p->right,
                y, y);
        apr_plot_text(p, p->left - MARK_GAP, y + 4, APR_TEXT_END, "", mark_text(text, &p->y, at));
    }
    write_title(p, &p->y, 2, 14, APR_TEXT_START);
    write_title(p, &p->x, p->right, p->bottom + 36, APR_TEXT_END);
}

void apr_plot_under(const apr_plot *p, double x, const char *text, double *end)
{
    const double half = apr_plot_text_width(text) / 2.0;

    if (x - half < *end + 6.0 && *end >= 0.0) return;
    apr_plot_text(p, x, p->bottom + 18, APR_TEXT_MIDDLE, "", text);
    *end = x + half;
}

void apr_plot_x_marks(const apr_plot *p)
{
    const int n = (int)lround((p->x.high - p->x.low) / p->x.step);
    char text[APR_SMALL_TEXT];
    double end = -1.0;

    for (int i = 0; i <= n; i++) {
        const double at = p->x.low + p->x.step * i;
        apr_plot_under(p, apr_plot_x(p, mark_value(&p->x, at)), mark_text(text, &p->x, at), &end);
    }
}

/* --- texts --- */

double apr_plot_text_width(const char *text) { return 7.4 * apr_text_columns(text); }

void apr_plot_text(const apr_plot *p, double x, double y, apr_text_anchor anchor, const char *class, const char *text)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    const double width = apr_plot_text_width(text), before = 0.5 * (double)anchor * width, last = p->width - 2.0 - (width - before);

    x = fmax(fmin(x, last), 2.0 + before);
    fputs("<text", p->out);
    if (class[0] != '\0') fprintf(p->out, " class=\"%s\"", class);
    fprintf(p->out, " x=\"%.1f\" y=\"%.1f\"%s>", x, y, anchors[anchor]);
    apr_html_print(p->out, "%s</text>\n", text);
}

void apr_plot_bound(const apr_plot *p, double value, const char *what)
{
    char text[160], number[APR_SMALL_TEXT];

    if (!(value > (p->y.is_log ? pow(10.0, p->y.low) : p->y.low)) || value > mark_value(&p->y, p->y.high)) return;
    const double y = apr_plot_y(p, value);
    fprintf(p->out, "<line class=\"bound\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", p->left, p->right, y, y);
    snprintf(text, sizeof text, "%s %s", what, apr_number_text(number, value, apr_decimals_of(value, 2)));
    apr_plot_text(p, p->right, y - 5, APR_TEXT_END, "bound-text", text);
}

/* --- both widths --- */

void apr_plot_twice(FILE *out, const char *label, double wide_height, double narrow_height, apr_plot_draw *draw, const void *of)
{
    for (int is_narrow = 0; is_narrow <= 1; is_narrow++) {
        apr_plot p = {.out = out, .is_narrow = is_narrow, .height = is_narrow ? narrow_height : wide_height};
        p.width = is_narrow ? APR_PLOT_NARROW : APR_PLOT_WIDE;
        p.left = is_narrow ? 48 : 64;
        p.right = p.width - (is_narrow ? 8 : 20);
        p.top = 30;
        p.bottom = p.height - 42;
        apr_html_print(out, "<svg class=\"%s\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", is_narrow ? "narrow" : "wide",
                       p.width, p.height, label);
        draw(&p, of);
        fputs("</svg>\n", out);
    }
}
