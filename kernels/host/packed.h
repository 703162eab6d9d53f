/* packed.h - one packed row times one vector, without decoding the row to memory: what a single token's linear layers do. */
#ifndef APR_KERNELS_HOST_PACKED_H
#define APR_KERNELS_HOST_PACKED_H

#include "formats/number/dtype.h"

/* Sum of row[i] * x[i], i < n; n is whole blocks. */
typedef void (*apr_packed_dot_fn)(const uint8_t *row, const float *x, int64_t n, float *sum);

/* NULL: decode the row and multiply. */
apr_packed_dot_fn apr_host_packed_dot(apr_dtype dtype);

#endif
