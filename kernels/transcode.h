/* transcode.h - writes a packed matrix (codes, scales and zero points in several tensors) as a block type that holds the same numbers.
 * No value is recomputed.
 *
 *     codes                              blocks   when
 *     E2M1, powers of two for each 32    MXFP4    always
 *     E2M1, E4M3 for each 16             NVFP4    no scale is negative or NaN; the matrix's global scale is a separate tensor (".scale")
 *     integers of at most 4 bits         Q4_0     scales are FP16 numbers, level - zero is in [-8, 7]
 *                                        Q4_1     zero * scale is an FP16 number also
 *                                        Q5_0     level - zero is in [-16, 15]: every zero point of 4 bits
 *     integers of at most 8 bits         Q8_0     level - zero is in [-128, 127]
 *
 * A group of columns must be whole blocks; with act order, which assigns columns to groups freely, no block type fits. All scales are
 * read to find out whether they are FP16 numbers. */
#ifndef APR_KERNELS_TRANSCODE_H
#define APR_KERNELS_TRANSCODE_H

#include "formats/tensor/packing.h"

/* The first type of the list above that `holds` accepts and that fits the matrix's numbers; APR_DTYPE_COUNT: none. `tensor` has a
 * packing, or is a stack of such (formats/tensor/composed.h). Reads scales and zero points, but no codes. */
apr_dtype apr_transcode_type(const apr_tensor *tensor, bool (*holds)(apr_dtype dtype));

/* Writes one logical row as blocks of that type. */
void apr_transcode_row(const apr_tensor *tensor, apr_dtype to, int64_t row, uint8_t *dst);

/* The global scale of a matrix of the stack, as a multiplier; 1 where the blocks include it. Only NVFP4 has them. */
bool apr_transcode_has_global_scales(const apr_tensor *tensor, apr_dtype to);
int64_t apr_transcode_matrices(const apr_tensor *tensor);
float apr_transcode_global_scale(const apr_tensor *tensor, int64_t matrix);

/* Differences found by decoding the written rows; starts zeroed. */
typedef struct apr_transcode_cost {
    int64_t n_different; /* values that are not the same real number; +0 equals -0 */
    double worst;        /* their largest relative difference */
    int64_t n_rounded;   /* values that the checkpoint's library rounds to its type, and readers of blocks do not */
    int64_t n_off;       /* values that differ from the library's, even when rounded in the same way */
} apr_transcode_cost;

/* Adds the differences of one row. library: apr_reference_type (formats/tensor/library_type.h). */
void apr_transcode_compare(const apr_tensor *tensor, apr_dtype library, apr_dtype to, int64_t row, const uint8_t *blocks,
                           apr_transcode_cost *cost);

#endif
