/* gather.h - reads elements of a composed tensor (formats/tensor/composed.h) piece by piece.
 *
 * Any range of elements can be read, at the cost of that range: nothing is allocated, and only the needed part of the sources is read. A
 * range begins and ends at a block of the tensor's type. Moves copy bytes; values are computed in float32, in the order of the steps. */
#ifndef APR_KERNELS_GATHER_H
#define APR_KERNELS_GATHER_H

#include "formats/tensor/composed.h"

/* Elements [first, first + n) as a file would store them: apr_row_bytes(tensor->dtype, n) bytes. */
void apr_gather_bytes(const apr_tensor *made, int64_t first, int64_t n, uint8_t *dst);
/* The same as float32; the tensor's type must have a decoder. */
void apr_gather_values(const apr_tensor *made, int64_t first, int64_t n, float *dst);

#endif
