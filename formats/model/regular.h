/* regular.h - the canonical layout of packed matrices: one contiguous buffer into which every packing (formats/model/packing.h) can be
 * repacked without changing a value or a bit of its scales. This file has only the sizes; kernels/relay.h repacks.
 *
 *     codes    [rows, columns]                4 or 8 bits, low nibble first; each row padded to whole bytes
 *     scales   [rows / scale_rows, groups]    as stored; quantized scales are expanded to F32
 *     zeros    [rows / scale_rows, groups]    one byte each
 *     commons  [matrices]                     F32
 *     groups   [matrices, columns]            I32
 *
 * Each section starts at a multiple of 64 bytes. Devices read this layout, so a plan needs its size before there are tensors. */
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

/* Totals over all matrices of a stack. */
typedef struct apr_regular {
    uint64_t rows, columns, bits; /* bits: apr_regular_bits */
    uint64_t n_scales, scale_bytes;
    uint64_t n_zeros, n_commons, n_groups; /* 0: there are none */
} apr_regular;

/* The width that codes are widened to: 4 or 8. */
int apr_regular_bits(int bits);

/* Offset of each section; [APR_REGULAR_PIECES] is the total size. UINT64_MAX: overflow. */
void apr_regular_offsets(const apr_regular *regular, uint64_t offsets[APR_REGULAR_PIECES + 1]);

#endif
