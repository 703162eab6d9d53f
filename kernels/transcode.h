/* transcode.h - a matrix whose numbers lie in several tensors, written as a block type that holds the same numbers: no value is computed.
 *
 *     codes                              blocks   when
 *     E2M1, powers of two for each 32    MXFP4    always
 *     E2M1, E4M3 for each 16             NVFP4    no scale is negative or NaN; the matrix's common factor lies beside (".scale")
 *     whole numbers of at most 4 bits    Q4_0     scales are halves, level - zero lies in [-8, 7]
 *                                        Q4_1     zero * scale is a half as well
 *                                        Q5_0     level - zero lies in [-16, 15]: every zero point of 4 bits
 *     whole numbers of at most 8 bits    Q8_0     level - zero lies in [-128, 127]
 *
 * A group of columns must be whole blocks; where act order deals columns out to groups, no block type does. Whether scales are halves is
 * found by reading all of them. */
#ifndef APR_KERNELS_TRANSCODE_H
#define APR_KERNELS_TRANSCODE_H

#include "formats/model/packing.h"

/* The first type of the list above that `holds` and that the matrix's numbers fit; APR_DTYPE_COUNT when there is none. `tensor` has a
 * packing, or is a stack of such (formats/model/made.h). Reads scales and zero points, no codes. */
apr_dtype apr_transcode_type(const apr_tensor *tensor, bool (*holds)(apr_dtype dtype));

/* One logical row as blocks of that type. */
void apr_transcode_row(const apr_tensor *tensor, apr_dtype to, int64_t row, uint8_t *dst);

/* The factor beside a matrix of the stack, as a multiplier: 1 where the blocks say all. Only NVFP4 has them. */
bool apr_transcode_has_commons(const apr_tensor *tensor, apr_dtype to);
int64_t apr_transcode_matrices(const apr_tensor *tensor);
float apr_transcode_common(const apr_tensor *tensor, int64_t matrix);

/* What reading rows back has shown; begins zeroed. */
typedef struct apr_transcode_cost {
    int64_t n_different; /* values that are not the same real numbers; zeros of either sign are */
    double worst;        /* their largest relative difference */
    int64_t n_rounded;   /* values that the checkpoint's library rounds to its type, which readers of blocks do not */
    int64_t n_off;       /* values that are not the library's, even when they are rounded as it rounds */
} apr_transcode_cost;

/* Adds that of one row. library: apr_library_type (formats/model/library_type.h). */
void apr_transcode_compare(const apr_tensor *tensor, apr_dtype library, apr_dtype to, int64_t row, const uint8_t *blocks,
                           apr_transcode_cost *cost);

#endif
