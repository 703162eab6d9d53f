/* kernels/low_rank.h - values of a tensor that an adapter was merged into (apr_merge in formats/model/made.h).
 *
 * Float32, in one order whatever is asked for: the sum over k ascending, from 0 on; times the scale; added to the value; then, where
 * there are magnitudes, times magnitude / length, the length being the root of the row's squares summed in double. So a piece is the
 * same as that piece of the whole, and threads change nothing. Costs rank multiplications a value; with magnitudes each row is
 * computed twice. Nothing is allocated. */
#ifndef APR_KERNELS_LOW_RANK_H
#define APR_KERNELS_LOW_RANK_H

#include "formats/model/made.h"

/* Elements [first, first + n) of a tensor whose made->merge is not NULL. */
void apr_low_rank_values(const apr_tensor *merged, int64_t first, int64_t n, float *dst);

#endif
