/* unpack.h - decodes a packed matrix, whose numbers are in several tensors (formats/tensor/packing.h), row by row.
 *
 * Nothing is allocated, and only the requested range of the parts is read. The values are those of the library that defines the packing:
 * level - zero is exact, its product with the factor is rounded to float32 and then to the tensor's type. */
#ifndef APR_KERNELS_UNPACK_H
#define APR_KERNELS_UNPACK_H

#include "formats/tensor/packing.h"

/* Columns [first, first + n) of a stored row, counted from the packing's first row. */
void apr_unpack_values(const apr_packing *packing, apr_dtype type, int64_t row, int64_t first, int64_t n, float *dst);
/* The same, before the rounding to the matrix's type. */
void apr_unpack_products(const apr_packing *packing, int64_t row, int64_t first, int64_t n, float *dst);

/* The codes, one byte each, whatever their width. */
void apr_unpack_codes(const apr_packing *packing, int64_t row, int64_t first, int64_t n, uint8_t *codes);
/* The level of every code: 1 << packing->bits of them. */
void apr_unpack_levels(const apr_packing *packing, float levels[256]);
/* The group of a column; the factor of a group; the zero point of a group. */
int64_t apr_unpack_group(const apr_packing *packing, int64_t row, int64_t column);
float apr_unpack_factor(const apr_packing *packing, int64_t row, int64_t group);
int apr_unpack_zero(const apr_packing *packing, int64_t row, int64_t group);
/* A factor is the scale, at this index among all, by the global scale of the row's matrix (1: there is none). In flat packings a scale is
 * found by its number in the string. */
int64_t apr_unpack_scale_index(const apr_packing *packing, int64_t row, int64_t group);
float apr_unpack_scale(const apr_packing *packing, int64_t index);
float apr_unpack_global_scale(const apr_packing *packing, int64_t row);

#endif
