/* packing.h - a matrix whose values are spread over several tensors of a checkpoint: codes, scales, zero points.
 *
 * In GPTQ, AWQ, NVFP4, nf4 and pack-quantized integers alike, a value is
 *
 *     value[row, column] = T((level(code[row, column]) - zero) * factor)
 *     factor             = scale * common, or scale / common         (float32)
 *     zero               = zero_bias + the code of the zero point    (an integer; GPTQ's within its word: see below)
 *
 * The layouts differ in where the code, scale and zero point of a position are stored. T is the type in which the library that defines the
 * layout multiplies (apr_tensor.dtype of the matrix). The difference is exact; the product is rounded to float32 and then to T. For
 * integers and scales of 8 or 11 bits the float32 product is exact, so the value is rounded once, as in the library.
 *
 * A reader binds the tensors it finds (formats/packed/packings.h) into apr_model.packings and leaves them as they are, so that files can be
 * copied byte for byte. A canonical view (convert/naming.h) has the matrix instead of its parts: apr_tensor.packing, no data.
 * kernels/unpack.h reads it row by row; the matrix is never expanded as a whole. */
#ifndef APR_FORMATS_PACKING_H
#define APR_FORMATS_PACKING_H

#include "formats/tensor/model.h"

/* Where the code of [row, column] is stored. A bit string starts at the lowest bit of the first byte, with b bits per code. */
typedef enum {
    APR_CODES_BY_ROW,      /* a row is a bit string, padded to codes->n_bytes / rows: compressed-tensors, NVFP4, MXFP4, INT8 */
    APR_CODES_HIGH_FIRST,  /* all rows form one string of nibbles, the high nibble of a byte first: bitsandbytes */
    APR_CODES_DOWN,        /* I32 [columns * b / 32 (rounded up), rows]: each column of words is a bit string along the inputs: GPTQ */
    APR_CODES_INTERLEAVED, /* I32 [columns, rows / 8], 4 bits: rows 8w + 0 .. 8w + 7 are nibbles 0 4 1 5 2 6 3 7 of a word: AWQ */
    APR_CODES_ORDER_COUNT
} apr_code_order;

/* The value of a code. */
typedef enum {
    APR_LEVEL_UNSIGNED, /* itself */
    APR_LEVEL_SIGNED,   /* two's complement of b bits */
    APR_LEVEL_E2M1,     /* 0 .5 1 1.5 2 3 4 6; bit 3 is the sign */
    APR_LEVEL_E4M3,     /* 8 bits */
    APR_LEVEL_TABLE     /* packing->levels */
} apr_code_level;

/* Where the zero point of [row, group] is stored. */
typedef enum {
    APR_ZEROS_NONE,        /* not stored: zero_bias only */
    APR_ZEROS_BY_ROW,      /* one per scale, in I8 (signed) or U8 */
    APR_ZEROS_ALONG_ROWS,  /* I32 [groups, rows * b / 32]: each group is a bit string over the rows: GPTQ. zero_bias is added to whole
                            * words modulo 2^32; where codes cross word boundaries, to each code modulo 2^b */
    APR_ZEROS_INTERLEAVED, /* I32 [groups, rows / 8], as AWQ's codes */
    APR_ZEROS_DOWN         /* I32 [rows * b / 32, groups]: each column of words is a bit string along the rows: compressed-tensors */
} apr_zero_order;

/* bitsandbytes' quantized scales: scale i = map[code i] * scales[i / block] + offset. */
typedef struct apr_nested_scales {
    const apr_tensor *map;    /* [256] F32 */
    const apr_tensor *scales; /* F32 */
    int64_t block;
    float offset;
} apr_nested_scales;

typedef struct apr_packing {
    const char *scheme;    /* description for messages: "GPTQ, 4 bits, groups of 128, act order" */
    int64_t rows, columns; /* as stored; the matrices of a stack follow one another */
    int64_t matrix_rows;   /* of one matrix of a stack; equals rows for a single matrix */
    int64_t first_row;     /* the stored row that is row 0 of the tensor with this packing */

    const apr_tensor *codes;
    apr_code_order order;
    apr_code_level level;
    int bits;            /* 1 to 8 */
    const float *levels; /* [1 << bits], for APR_LEVEL_TABLE */

    const apr_tensor *scales;
    apr_dtype scale_dtype;             /* type of the scales' bits: F32, F16, BF16, F8_E4M3, E8M0; U8 with nested scales */
    bool scales_down;                  /* [groups, rows] instead of [rows / scale_rows, groups] */
    int64_t scale_rows, scale_columns; /* rows and columns per scale, within one matrix; the last scales may cover fewer. With
                                        * APR_CODES_HIGH_FIRST a scale covers scale_columns numbers of the string, across row ends */
    const apr_nested_scales *nested;   /* NULL: the scales are not quantized */
    const apr_tensor *global_scales;   /* F32, one per tensor or one per matrix of the stack; NULL: 1 */
    bool divides;                      /* factor = scale / common instead of scale * common */

    apr_zero_order zero_order;
    const apr_tensor *zeros; /* NULL with APR_ZEROS_NONE */
    int zero_bias;

    const apr_tensor *groups; /* I32 [columns], for a stack [matrices, columns]: group of each column; NULL: column / scale_columns */

    const apr_tensor *const *parts; /* [n_parts] all tensors above and others of this weight (weight_shape, ...): copied with it */
    size_t n_parts;
} apr_packing;

/* The stored row of logical row r of a packed tensor. */
static inline int64_t apr_packed_row(const apr_tensor *tensor, int64_t r)
{
    return tensor->packing->first_row + apr_step_row(tensor->pending, apr_tensor_rows(tensor), r);
}

/* Is there one scale for a number of values that are counted through all rows, so that it can cross the end of a row (bitsandbytes)? */
static inline bool apr_packing_is_flat(const apr_packing *packing) { return packing->order == APR_CODES_HIGH_FIRST; }

/* apr_model.packings holds tensors named "X.weight", of type T, with dims [.., rows, columns], n_bytes as if plain, a packing and no
 * data. Their parts are among the model's tensors. */

/* Number of groups in a row, and number of scale rows of one matrix. */
int64_t apr_packing_groups(const apr_packing *packing);
int64_t apr_packing_scale_rows(const apr_packing *packing);
/* Bytes of codes, scales, zero points and other parts, as stored: the share of `n_rows` rows. */
uint64_t apr_packing_bytes(const apr_packing *packing, int64_t n_rows);

#endif
