/* quant/feedback/lane_products.h - a matrix times sixteen vectors at once, one for each of sixteen rows of weights.
 *
 * Element j of all sixteen vectors is contiguous: x[j][16] (lane order). Rows of weights never mix, so the result of a row does not
 * depend on its neighbours or on threads. Float32 sums in a fixed order, with fused multiply-adds if the machine has them. */
#ifndef APR_QUANT_LANE_PRODUCTS_H
#define APR_QUANT_LANE_PRODUCTS_H

#include <stdint.h>

enum { APR_LANES = 16 };

/* sums[k][lane] += sum over j < n: matrix[k * stride + j] * x[j][lane], for k < n_rows */
void apr_lane_products(const float *matrix, int64_t stride, int64_t n_rows, const float *x, int64_t n, float *sums);

/* sums[i][j] = sum over t < n: a[t * stride + i] * b[t * stride + j] */
enum { APR_OUTER_ROWS = 4, APR_OUTER_COLUMNS = 32 };
void apr_outer_products(const float *a, const float *b, int64_t stride, int64_t n, float sums[APR_OUTER_ROWS][APR_OUTER_COLUMNS]);

#endif
