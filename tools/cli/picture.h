/* picture.h - pictures of a page (page.h), as SVG in its colours. What all of them share, and curves over a few points. */
#ifndef APR_TOOLS_PICTURE_H
#define APR_TOOLS_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* <svg> of that many units, as wide as the page; label: for who cannot see it. It ends with </svg>. */
void apr_picture_open(FILE *out, double width, double height, const char *label);

/* The least of 1, 2, 5 times a power of ten that goes into `largest` at most `most` times; 1 where largest is no positive number. */
double apr_picture_step(double largest, int most);

enum { APR_PICTURE_MOST_CURVES = 2 }; /* the page has so many colours */

typedef struct apr_curve {
    const char *name;         /* of its points */
    const double *values;     /* [n_points], at least 0 */
    const double *low, *high; /* [n_points] of what was measured, or NULL */
} apr_curve;

typedef struct apr_curves {
    const char *label, *unit, *across; /* of the picture, the values and the points; HTML */
    const int64_t *at;                 /* [n_points] at least 0, ascending */
    size_t n_points;
    bool by_ratio; /* 1, 2 and 4 stand equally far apart, and no point is at 0; otherwise 0, 1 and 2 do */
    const apr_curve *curves;
    size_t n_curves;
} apr_curves;

/* From 0 upwards, a point for each value; a number beside it where there is one curve alone. */
void apr_picture_curves(FILE *out, const apr_curves *curves);

#endif
