/* chart.h - SVG charts for HTML reports (html.h), in their colours: the parts that all charts share, and line charts. */
#ifndef APR_TOOLS_CHART_H
#define APR_TOOLS_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes <svg> of that many units, scaled to the page's width. label: its text for screen readers. The caller writes </svg>. */
void apr_chart_open(FILE *out, double width, double height, const char *label);

/* The step between axis marks: the smallest of 1, 2 or 5 times a power of ten that fits into `largest` at most `most` times. 1 if largest
 * is not a positive number. */
double apr_chart_step(double largest, int most);

enum { APR_CHART_MAX_CURVES = 2 }; /* as many as the style sheet has colours */

typedef struct apr_curve {
    const char *name;         /* for the tooltips of its points */
    const double *values;     /* [n_points], at least 0 */
    const double *low, *high; /* [n_points] range of the measurements, or NULL */
} apr_curve;

typedef struct apr_curves {
    const char *label, *unit, *across; /* HTML: the chart's label, the unit of the values (y), the name of the x axis */
    const int64_t *at;                 /* [n_points] x, at least 0, ascending */
    size_t n_points;
    bool by_ratio; /* logarithmic x axis; no x is 0 */
    const apr_curve *curves;
    size_t n_curves;
} apr_curves;

/* A line chart; the y axis starts at 0. If there is only one curve, its points are labelled with their values. */
void apr_chart_curves(FILE *out, const apr_curves *curves);

#endif
