/* canonical_layout.h - the canonical layout of packed matrices: one contiguous buffer into which every packing (formats/tensor/packing.h) can be
 * repacked without changing a value or a bit of its scales. This file has only the sizes; kernels/repack.h repacks.
 *
 *     codes    [rows, columns]                4 or 8 bits, low nibble first; each row padded to whole bytes
 *     scales   [rows / scale_rows, groups]    as stored; quantized scales are expanded to F32
 *     zeros    [rows / scale_rows, groups]    one byte each
 *     global_scales  [matrices]                     F32
 *     groups   [matrices, columns]            I32
 *
 * Each section starts at a multiple of 64 bytes. Devices read this layout, so a plan needs its size before there are tensors. */
#ifndef APR_FORMATS_CANONICAL_LAYOUT_H
#define APR_FORMATS_CANONICAL_LAYOUT_H

#include <stdint.h>

typedef enum {
    APR_CANONICAL_CODES,
    APR_CANONICAL_SCALES,
    APR_CANONICAL_ZEROS,
    APR_CANONICAL_GLOBAL_SCALES,
    APR_CANONICAL_GROUPS,
    APR_CANONICAL_SECTIONS
} apr_canonical_section;

/* Totals over all matrices of a stack. */
typedef struct apr_canonical_layout {
    uint64_t rows, columns, bits; /* bits: apr_canonical_bits */
    uint64_t n_scales, scale_bytes;
    uint64_t n_zeros, n_global_scales, n_groups; /* 0: there are none */
} apr_canonical_layout;

/* The width that codes are widened to: 4 or 8. */
int apr_canonical_bits(int bits);

/* Offset of each section; [APR_CANONICAL_SECTIONS] is the total size. UINT64_MAX: overflow. */
void apr_canonical_offsets(const apr_canonical_layout *regular, uint64_t offsets[APR_CANONICAL_SECTIONS + 1]);

#endif
