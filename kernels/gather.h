/* gather.h - the elements of a tensor that is made of others (formats/model/made.h), read piece by piece.
 *
 * Any range of elements, at the cost of that range: nothing is allocated, and no more of the sources is read. A range begins and
 * ends with a block of the tensor's type. Moves copy bytes; values are computed in float32, in the order of the steps. */
#ifndef APR_KERNELS_GATHER_H
#define APR_KERNELS_GATHER_H

#include "formats/model/made.h"

/* Elements [first, first + n) as they would lie in a file: apr_row_bytes(tensor->dtype, n) bytes. */
void apr_gather_bytes(const apr_tensor *made, int64_t first, int64_t n, uint8_t *dst);
/* The same as float32; the tensor's type can be decoded. */
void apr_gather_values(const apr_tensor *made, int64_t first, int64_t n, float *dst);

/* A block of MXFP4 as checkpoints have it (scale, then elements 2j and 2j + 1 in the low and high half of byte j) and as ggml has it
 * (scale, then elements j and j + 16), in place. */
void apr_mxfp4_pack(uint8_t block[17]);
void apr_mxfp4_unpack(uint8_t block[17]);

#endif
