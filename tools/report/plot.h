/* plot.h - the parts of all SVG charts of HTML pages (html.h): each is drawn twice, for wide and for narrow screens; axes and texts. */
#ifndef APR_TOOLS_PLOT_H
#define APR_TOOLS_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Of a logarithmic axis low and high are powers of ten (-2 is 0.01), and step is 1. */
typedef struct apr_axis {
    const char *title; /* with its unit, HTML; " (log)" is added to that of a logarithmic axis */
    double low, high, step;
    bool is_log;
} apr_axis;

/* From zero to a round number that is not below `largest`, with at most `most` marks. */
apr_axis apr_axis_linear(const char *title, double largest, int most);
/* Whole decades for values in (0, largest]: at least one, at most `most`. Smaller values are drawn at the bottom. */
apr_axis apr_axis_decades(const char *title, double smallest, double largest, int most);
/* The step between marks: the smallest of 1, 2 or 5 times a power of ten that fits into `largest` at most `most` times. 1 if largest is not
 * a positive number. */
double apr_axis_step(double largest, int most);

enum { APR_PLOT_WIDE = 960, APR_PLOT_NARROW = 360 };

/* One drawing. The area in SVG units is set before it is drawn; charts with axes set x and y. */
typedef struct apr_plot {
    FILE *out;
    bool is_narrow;
    double width, height;
    double left, right, top, bottom; /* of the area inside the axes */
    apr_axis x, y;
} apr_plot;

typedef void apr_plot_draw(apr_plot *plot, const void *of);
/* Draws the chart for both widths; the style sheet shows the one that fits the screen. label: for screen readers, plain text. */
void apr_plot_twice(FILE *out, const char *label, double wide_height, double narrow_height, apr_plot_draw *draw, const void *of);

/* Where a value is; values beyond an axis are at its end. Not finite: at the top. */
double apr_plot_x(const apr_plot *plot, double value);
double apr_plot_y(const apr_plot *plot, double value);

/* Grid lines with numbers, and the titles of both axes. First, left is moved to where the numbers of the y axis end. */
void apr_plot_axes(apr_plot *plot);
/* The numbers of the x axis at its marks; where they would touch, they are left out. */
void apr_plot_x_marks(const apr_plot *plot);
/* A number under the x axis, unless it would touch the previous one, which ends at *end. Start with -1. */
void apr_plot_under(const apr_plot *plot, double x, const char *text, double *end);

typedef enum { APR_TEXT_START, APR_TEXT_MIDDLE, APR_TEXT_END } apr_text_anchor;
/* Plain text that stays inside the drawing: it is moved where it would be cut. class: of the style sheet, or "". */
void apr_plot_text(const apr_plot *plot, double x, double y, apr_text_anchor anchor, const char *class, const char *text);
/* About as wide as a browser draws it, and not less. */
double apr_plot_text_width(const char *text);
/* A dashed line across the area, with its text, if the value is inside the y axis. */
void apr_plot_bound(const apr_plot *plot, double value, const char *what);

#endif
