/* packed_matrix.h - random matrices in any layout that formats/tensor/packing.h describes, and what their values are by definition. */
#ifndef APR_TESTS_PACKED_MATRIX_H
#define APR_TESTS_PACKED_MATRIX_H

#include "formats/tensor/packing.h"

/* What to make; what is 0 is left out, or natural. */
typedef struct packed_kind {
    const char *what;
    apr_code_order order;
    apr_code_level level;
    int bits;
    int64_t n_matrices, rows, columns; /* rows of each matrix; n_matrices 0: 1 */
    apr_dtype dtype;                   /* that values decode to */
    apr_dtype scale_dtype;
    bool scales_down;
    int64_t scale_rows, scale_columns; /* 0: 1, and all */
    bool is_nested;
    int n_global_scales; /* 0, 1, or one a matrix */
    bool divides;
    apr_zero_order zero_order;
    bool signed_zeros;
    int zero_bias;
    bool act_order;
} packed_kind;

typedef struct packed_matrix {
    apr_tensor tensor; /* all of it: [rows, columns], of a stack [n_matrices, rows, columns] */
    apr_packing packing;
    apr_nested_scales nested;
    apr_tensor codes, scales, global_scales, zeros, groups, map, scales_of_scales;
    const apr_tensor *parts[8];
    float levels[16];
} packed_matrix;

/* The matrix points into itself and must stay where it is. Its memory is of exact sizes. */
void packed_matrix_make(packed_matrix *m, const packed_kind *kind);
void packed_matrix_free(packed_matrix *m);
/* Matrix `matrix` of a stack alone, of the stack's packing with a first row: *packing must stay with the tensor. */
apr_tensor packed_matrix_of(const packed_matrix *m, int64_t matrix, apr_packing *packing);

/* The value of a place of a packing's rows as stored, one bit at a time by the definition, rounded to dtype. */
float packed_value(const apr_packing *packing, apr_dtype dtype, int64_t row, int64_t column);

/* Every order, level, width, place of scales and zero points, and the schemes that are published; the last is without a name. */
extern const packed_kind packed_kinds[];

#endif
