/* repack.h - repacks packed matrices (GPTQ, AWQ, ...) into one canonical layout (formats/tensor/canonical_layout.h), rows by rows, so that one
 * kernel reads all kinds.
 *
 * The canonical layout is itself a packing: apr_decode_rows gives the same bits for it as for the original. Codes, zero points and
 * scales are only moved (codes of other widths are widened to 4 or 8 bits). Scales that are quantized themselves are decoded, exactly as
 * defined. A pending row step, a first row, and a column order that is the natural one are resolved. Several matrices of one kind, such
 * as a layer's experts, become one stack.
 *
 *     apr_repack repack;
 *     if (apr_repack_init(&repack, experts, n)) ...   memory needed: repack.offsets[APR_CANONICAL_SECTIONS] bytes
 *     apr_repack_bind(&repack, memory);                  repack.packing now describes that memory, on whatever device it is
 *     apr_repack_rows(&repack, APR_CANONICAL_CODES, row, n_rows, staging);
 *
 * Nothing here allocates. The parts are borrowed. An apr_repack contains pointers to itself and must not be moved after apr_repack_bind. */
#ifndef APR_KERNELS_REPACK_H
#define APR_KERNELS_REPACK_H

#include "formats/tensor/canonical_layout.h"
#include "formats/tensor/packing.h"

typedef struct apr_repack {
    const apr_tensor *parts; /* [n_parts] */
    int64_t n_parts;
    uint64_t offsets[APR_CANONICAL_SECTIONS + 1];
    int64_t piece_rows[APR_CANONICAL_SECTIONS]; /* rows of each piece (codes, scales, ...); 0: absent */
    uint64_t row_bytes[APR_CANONICAL_SECTIONS]; /* bytes of a row of each piece */
    apr_packing packing;                        /* the repacked matrices; has no memory before apr_repack_bind */
    apr_tensor pieces[APR_CANONICAL_SECTIONS];
    const apr_tensor *piece_list[APR_CANONICAL_SECTIONS];
    float levels[16];
} apr_repack;

/* Describes the repacked layout of n_parts matrices, stacked. False: they are not packed matrices of one kind and shape, or cannot be
 * repacked: tables of more than 16 levels, or a tensor with some rows of several matrices. */
bool apr_repack_init(apr_repack *repack, const apr_tensor *parts, int64_t n_parts);
/* Sets the address of the repacked matrices. */
void apr_repack_bind(apr_repack *repack, const uint8_t *memory);
/* Repacks rows [row, row + n_rows) of a piece. Different rows may be repacked by different threads. */
void apr_repack_rows(const apr_repack *repack, apr_canonical_section piece, int64_t row, int64_t n_rows, uint8_t *dst);

#endif
