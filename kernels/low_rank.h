/* kernels/low_rank.h - values of a tensor with a merged LoRA adapter (apr_merge in formats/tensor/composed.h).
 *
 * value + scale * (b a), in float32 and always in the same order: the sum over k ascending from 0, times the scale, added to the value.
 * With magnitudes (DoRA) the row is then multiplied by magnitude / length, where the length is the root of the row's squares summed in
 * double. So a piece equals that piece of the whole, and threads change nothing. Costs rank multiplications a value; with magnitudes
 * each row is computed twice. Nothing is allocated. */
#ifndef APR_KERNELS_LOW_RANK_H
#define APR_KERNELS_LOW_RANK_H

#include "formats/tensor/composed.h"

/* Elements [first, first + n) of a tensor whose made->merge is not NULL. */
void apr_low_rank_values(const apr_tensor *merged, int64_t first, int64_t n, float *dst);

#endif
