/* quant/feedback/lane_rows.h - sixteen rows of weights on their way into blocks: what each step of the search changes.
 *
 * Numbers lie in lane order, [column][16]. `error` is always weight - value, value being what a decoder will read, whatever the last step
 * was; so the error of the outputs can be asked for at any time, and no step needs to know the one before. */
#ifndef APR_QUANT_LANE_ROWS_H
#define APR_QUANT_LANE_ROWS_H

#include "quant/feedback/grid.h"
#include "quant/feedback/hessian.h"
#include "quant/feedback/lane_products.h"

typedef struct apr_lane_rows {
    const apr_grid *grid;
    const apr_feedback *feedback;
    int64_t n, n_blocks, n_subs;            /* columns; blocks of a row; sub-blocks of a row */
    int n_rows;                             /* at most 16; the lanes behind them are zeros */
    apr_grid_block *blocks;                 /* [n_blocks][16] */
    float *weight, *error, *code, *ordered; /* [n][16]; ordered: errors in the Hessian's order */
    float *step, *offset, *inverse;         /* [n_subs][16] */
    void *memory;
} apr_lane_rows;

apr_status apr_lane_rows_open(apr_lane_rows *rows, const apr_feedback *feedback, const apr_grid *grid, apr_error *err);
void apr_lane_rows_close(apr_lane_rows *rows); /* zeroed is fine */
uint64_t apr_lane_rows_bytes(const apr_grid *grid, int64_t n);

/* weights [n_rows, n], blocks of the rows; and back. */
void apr_lane_rows_load(apr_lane_rows *rows, const float *weights, const uint8_t *blocks, int64_t row_bytes, int n_rows);
void apr_lane_rows_store(const apr_lane_rows *rows, uint8_t *blocks, int64_t row_bytes);

/* tr(E H E^T) of the rows. */
double apr_lane_rows_objective(const apr_lane_rows *rows);

/* All codes anew, in the Hessian's order, each with the errors before it. */
void apr_lane_rows_round(apr_lane_rows *rows);
/* All codes once more, a sub-block at a time, in natural order; with `rescale` also the scales next to each sub-block's. */
void apr_lane_rows_descend(apr_lane_rows *rows, bool rescale);
/* d and dmin of every block, codes held. */
void apr_lane_rows_refit(apr_lane_rows *rows);

#endif
