/* chart.h - SVG charts of HTML reports (plot.h), each with its values in a table: curves, pairs of bars, errors by layer. */
#ifndef APR_TOOLS_CHART_H
#define APR_TOOLS_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The title of a chart, which says what it shows: "Decoding is 1.9 times slower at depth 8,192". printf; the text is escaped. */
void apr_chart_finding(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The parts of a legend. colour: a variable of the style sheet, such as "one". */
typedef struct apr_legend {
    const char *colour, *name;
    enum { APR_LEGEND_FILLED, APR_LEGEND_HOLLOW, APR_LEGEND_LINE } form;
} apr_legend;
void apr_chart_legend(FILE *out, const apr_legend *parts, size_t n);

enum { APR_CHART_MAX_CURVES = 2 }; /* as many as the style sheet has colours */

typedef struct apr_curve {
    const char *name;         /* for the tooltips of its points, and the title of its values */
    const double *values;     /* [n_points], at least 0 */
    const double *low, *high; /* [n_points] range of the measurements, or NULL; they do not set the axis */
} apr_curve;

typedef struct apr_curves {
    const char *label, *unit, *across; /* the chart's label, the title of the y axis with its unit, that of the x axis; plain text */
    const int64_t *at;                 /* [n_points] x, at least 0, ascending */
    size_t n_points;
    bool by_ratio; /* logarithmic x axis; no x is 0 */
    const apr_curve *curves;
    size_t n_curves;
} apr_curves;

/* A line chart; the y axis starts at 0. If there is only one curve, its points are labelled with their values. */
void apr_chart_curves(FILE *out, const apr_curves *curves);

/* A row of two bars, one in the other. */
typedef struct apr_bar {
    const char *name;
    double hollow, filled; /* their lengths; 0: not drawn */
    const char *text;      /* after them */
} apr_bar;

void apr_chart_bars(FILE *out, const char *label, const apr_bar *bars, size_t n);

/* Errors by layer, on a logarithmic axis. */
typedef struct apr_layers {
    const char *label, *unit; /* the chart's label, and the title of the y axis */
    const char *bars_name, *line_name;
    const double *bars; /* [n_layers + 1]; the last is that of embeddings and output head */
    int64_t n_layers;
    const double *line; /* [n_line] after the embeddings and after each layer, or NULL */
    size_t n_line;
} apr_layers;

/* With its finding, a legend and the values. */
void apr_chart_layers(FILE *out, const apr_layers *layers);

#endif
