/* relay.h - brings packed matrices into their regular form (formats/model/regular.h), rows by rows, so that one kernel reads them all.
 *
 * The regular form is itself a packing: apr_decode_rows of it gives the bits that it gives of the original. Codes, zero points, scales
 * and what belongs to them are only moved (of fewer than 4 or 8 bits widened); scales that are quantized themselves are decoded, which
 * is exact to the definition. A pending row step, a first row, and the order of the columns' groups where it is the natural one are
 * resolved on the way. Several matrices of one kind, a layer's experts, become one stack.
 *
 *     apr_relay relay;
 *     if (apr_relay_begin(&relay, experts, n)) ...    what it takes: relay.offsets[APR_REGULAR_PIECES] bytes
 *     apr_relay_at(&relay, memory);                   relay.packing now describes what lies there, on whatever device that is
 *     apr_relay_rows(&relay, APR_REGULAR_CODES, row, n_rows, staging);
 *
 * Nothing here allocates. The parts are borrowed; a relay points into itself and must stay where it is after apr_relay_at. */
#ifndef APR_KERNELS_RELAY_H
#define APR_KERNELS_RELAY_H

#include "formats/model/packing.h"
#include "formats/model/regular.h"

typedef struct apr_relay {
    const apr_tensor *parts; /* [n_parts] */
    int64_t n_parts;
    uint64_t offsets[APR_REGULAR_PIECES + 1];
    int64_t piece_rows[APR_REGULAR_PIECES]; /* rows of each piece; 0: there is none */
    uint64_t row_bytes[APR_REGULAR_PIECES]; /* of one of them */
    apr_packing packing;                    /* without memory before apr_relay_at */
    apr_tensor pieces[APR_REGULAR_PIECES];
    const apr_tensor *piece_list[APR_REGULAR_PIECES];
    float levels[16];
} apr_relay;

/* What the regular form of n_parts matrices behind one another is. False: they are no packed matrices of one kind and shape, or of a
 * kind that has no regular form: tables of more than 16 levels, a tensor of some rows of several matrices. */
bool apr_relay_begin(apr_relay *relay, const apr_tensor *parts, int64_t n_parts);
/* It lies, or will, at `memory`. */
void apr_relay_at(apr_relay *relay, const uint8_t *memory);
/* Rows [row, row + n_rows) of a piece, one behind another. Different rows may be made by different threads. */
void apr_relay_rows(const apr_relay *relay, apr_regular_piece piece, int64_t row, int64_t n_rows, uint8_t *dst);

#endif
