/* relay.h - repacks packed matrices (GPTQ, AWQ, ...) into one canonical layout (formats/model/regular.h), rows by rows, so that one
 * kernel reads all kinds.
 *
 * The canonical layout is itself a packing: apr_decode_rows gives the same bits for it as for the original. Codes, zero points and
 * scales are only moved (codes of other widths are widened to 4 or 8 bits). Scales that are quantized themselves are decoded, exactly as
 * defined. A pending row step, a first row, and a column order that is the natural one are resolved. Several matrices of one kind, such
 * as a layer's experts, become one stack.
 *
 *     apr_relay repack;
 *     if (apr_relay_begin(&repack, experts, n)) ...   memory needed: repack.offsets[APR_REGULAR_PIECES] bytes
 *     apr_relay_at(&repack, memory);                  repack.packing now describes that memory, on whatever device it is
 *     apr_relay_rows(&repack, APR_REGULAR_CODES, row, n_rows, staging);
 *
 * Nothing here allocates. The parts are borrowed. An apr_relay contains pointers to itself and must not be moved after apr_relay_at. */
#ifndef APR_KERNELS_RELAY_H
#define APR_KERNELS_RELAY_H

#include "formats/model/packing.h"
#include "formats/model/regular.h"

typedef struct apr_relay {
    const apr_tensor *parts; /* [n_parts] */
    int64_t n_parts;
    uint64_t offsets[APR_REGULAR_PIECES + 1];
    int64_t piece_rows[APR_REGULAR_PIECES]; /* rows of each piece (codes, scales, ...); 0: absent */
    uint64_t row_bytes[APR_REGULAR_PIECES]; /* bytes of a row of each piece */
    apr_packing packing;                    /* the repacked matrices; has no memory before apr_relay_at */
    apr_tensor pieces[APR_REGULAR_PIECES];
    const apr_tensor *piece_list[APR_REGULAR_PIECES];
    float levels[16];
} apr_relay;

/* Describes the repacked layout of n_parts matrices, stacked. False: they are not packed matrices of one kind and shape, or cannot be
 * repacked: tables of more than 16 levels, or a tensor with some rows of several matrices. */
bool apr_relay_begin(apr_relay *repack, const apr_tensor *parts, int64_t n_parts);
/* Sets the address of the repacked matrices. */
void apr_relay_at(apr_relay *repack, const uint8_t *memory);
/* Repacks rows [row, row + n_rows) of a piece. Different rows may be repacked by different threads. */
void apr_relay_rows(const apr_relay *repack, apr_regular_piece piece, int64_t row, int64_t n_rows, uint8_t *dst);

#endif
