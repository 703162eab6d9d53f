/* quant/feedback/lane_rows.h - the state of the search for sixteen rows of weights, and its steps. feedback.c runs them; tests compare
 * the steps of a device with them.
 *
 * Arrays are in lane order, [column][16]. Each step keeps the invariant error = weight - value, where value is what a decoder will
 * read. So the output error can be computed at any time, and no step depends on which step was before. */
#ifndef APR_QUANT_LANE_ROWS_H
#define APR_QUANT_LANE_ROWS_H

#include "quant/feedback/grid.h"
#include "quant/feedback/hessian.h"
#include "quant/feedback/lane_products.h"

typedef struct apr_lane_rows {
    const apr_grid *grid;
    const apr_feedback *feedback;
    int64_t n, n_blocks, n_subs;             /* columns; blocks of a row; sub-blocks of a row */
    int n_rows;                              /* at most 16; the remaining lanes are zeros */
    apr_grid_block *blocks;                  /* [n_blocks][16] */
    float *weight, *error, *code, *gathered; /* [n][16]; gathered: errors in the Hessian's column order */
    float *step, *offset, *inverse;          /* [n_subs][16] */
    void *memory;
} apr_lane_rows;

apr_status apr_lane_rows_open(apr_lane_rows *rows, const apr_feedback *feedback, const apr_grid *grid, apr_error *err);
void apr_lane_rows_close(apr_lane_rows *rows); /* zeroed is fine */

/* Loads weights [n_rows, n] and the blocks of the rows; stores blocks. */
void apr_lane_rows_load(apr_lane_rows *rows, const float *weights, const uint8_t *blocks, int64_t row_bytes, int n_rows);
void apr_lane_rows_store(const apr_lane_rows *rows, uint8_t *blocks, int64_t row_bytes);

/* Returns tr(E H E^T) of the rows. */
double apr_lane_rows_objective(const apr_lane_rows *rows);

/* Rounds all codes again, in the Hessian's order, each corrected by the errors before it (LDLQ). */
void apr_lane_rows_round(apr_lane_rows *rows);
/* One sweep of coordinate descent, sub-block by sub-block in natural order; with `rescale` also tries neighbouring scales. */
void apr_lane_rows_descend(apr_lane_rows *rows, bool rescale);
/* Fits d and dmin of every block with fixed codes. */
void apr_lane_rows_refit(apr_lane_rows *rows);

#endif
