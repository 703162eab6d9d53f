/* regular.h - the regular form of packed matrices: one layout in one piece of memory, into which every packing (formats/model/packing.h)
 * can be brought without changing a value or its bits of scales. Only sizes are here; kernels/relay.h fills it.
 *
 *     codes    [rows, columns]                4 or 8 bits, the low ones first; each row padded to whole bytes
 *     scales   [rows / scale_rows, groups]    as stored; those that are quantized themselves as F32
 *     zeros    [rows / scale_rows, groups]    a byte each
 *     commons  [matrices]                     F32
 *     groups   [matrices, columns]            I32
 *
 * each at a multiple of 64 bytes. A device reads it, so a plan must know how much it is before there are tensors. */
#ifndef APR_FORMATS_REGULAR_H
#define APR_FORMATS_REGULAR_H

#include <stdint.h>

typedef enum {
    APR_REGULAR_CODES,
    APR_REGULAR_SCALES,
    APR_REGULAR_ZEROS,
    APR_REGULAR_COMMONS,
    APR_REGULAR_GROUPS,
    APR_REGULAR_PIECES
} apr_regular_piece;

/* Of all matrices of a stack together. */
typedef struct apr_regular {
    uint64_t rows, columns, bits; /* bits: apr_regular_bits */
    uint64_t n_scales, scale_bytes;
    uint64_t n_zeros, n_commons, n_groups; /* 0: there are none */
} apr_regular;

/* Codes of fewer bits are widened: 4 or 8. */
int apr_regular_bits(int bits);

/* Where each piece begins, and at [APR_REGULAR_PIECES] the end. What cannot be counted is UINT64_MAX. */
void apr_regular_offsets(const apr_regular *regular, uint64_t offsets[APR_REGULAR_PIECES + 1]);

#endif
