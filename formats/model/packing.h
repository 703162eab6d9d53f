/* packing.h - a matrix whose numbers lie in several tensors of a checkpoint: codes here, scales there, zero points elsewhere.
 *
 * GPTQ, AWQ, NVFP4, nf4, pack-quantized integers: whatever they are called, a value is
 *
 *     value[row, column] = T((level(code[row, column]) - zero) * factor)
 *     factor             = scale * common, or scale / common         (float32)
 *     zero               = zero_bias + the code of the zero point    (a whole number; GPTQ's within its word: see below)
 *
 * and the layouts differ in where code, scale and zero point of a place lie. T is the type in which the library that defines the
 * layout multiplies (apr_tensor.dtype of the matrix): the difference is exact, the product is rounded to float32 and then to T. For
 * integers and scales of 8 or 11 bits the float32 product is exact, so that T rounds once, as the library does.
 *
 * A reader binds what it finds (formats/hf/packings.h) into apr_model.packings and leaves the tensors as they are, so that files can
 * be carried byte for byte. A canonical view (convert/dialect.h) has the matrix instead of its parts: apr_tensor.packing, no data.
 * kernels/unpack.h reads it row by row; nothing makes a plain copy of all of it. */
#ifndef APR_FORMATS_PACKING_H
#define APR_FORMATS_PACKING_H

#include "formats/model/model.h"

/* Where the code of [row, column] lies. A bit string counts from the lowest bit of the first byte on, b bits a code. */
typedef enum {
    APR_CODES_BY_ROW,      /* a row is a bit string, padded to codes->n_bytes / rows: compressed-tensors, NVFP4, MXFP4, INT8 */
    APR_CODES_HIGH_FIRST,  /* all rows are one string of nibbles, the high one of a byte first: bitsandbytes */
    APR_CODES_DOWN,        /* I32 [columns * b / 32, rows]: a column of words is a bit string along the inputs, rounded up: GPTQ */
    APR_CODES_INTERLEAVED, /* I32 [columns, rows / 8], 4 bits: rows 8w + 0 .. 8w + 7 at nibbles 0 4 1 5 2 6 3 7: AWQ */
    APR_CODES_ORDER_COUNT
} apr_code_order;

/* What a code stands for. */
typedef enum {
    APR_LEVEL_UNSIGNED, /* itself */
    APR_LEVEL_SIGNED,   /* two's complement of b bits */
    APR_LEVEL_E2M1,     /* 0 .5 1 1.5 2 3 4 6, bit 3 the sign */
    APR_LEVEL_E4M3,     /* of 8 bits */
    APR_LEVEL_TABLE     /* packing->levels */
} apr_code_level;

/* Where the zero point of [row, group] lies. */
typedef enum {
    APR_ZEROS_NONE,        /* nowhere: zero_bias alone */
    APR_ZEROS_BY_ROW,      /* one beside each scale, of I8 (signed) or U8 */
    APR_ZEROS_ALONG_ROWS,  /* I32 [groups, rows * b / 32]: each group's are a bit string over the rows; the bias is added to whole words,
                            * modulo 2^32, or where codes cross words to each modulo 2^b: GPTQ */
    APR_ZEROS_INTERLEAVED, /* I32 [groups, rows / 8], as AWQ's codes */
    APR_ZEROS_DOWN         /* I32 [rows * b / 32, groups]: a column of words is a bit string down the rows: compressed-tensors */
} apr_zero_order;

/* bitsandbytes' scales that are quantized themselves: scale i = map[code i] * scales[i / block] + offset. */
typedef struct apr_nested_scales {
    const apr_tensor *map;    /* [256] F32 */
    const apr_tensor *scales; /* F32 */
    int64_t block;
    float offset;
} apr_nested_scales;

typedef struct apr_packing {
    const char *scheme;    /* for people: "GPTQ, 4 bits, groups of 128, act order" */
    int64_t rows, columns; /* as stored; the matrices of a stack behind one another */
    int64_t matrix_rows;   /* of one matrix of a stack; rows where there is one */
    int64_t first_row;     /* row 0 of the tensor that has this packing is this one */

    const apr_tensor *codes;
    apr_code_order order;
    apr_code_level level;
    int bits;            /* 1 to 8 */
    const float *levels; /* [1 << bits] of APR_LEVEL_TABLE */

    const apr_tensor *scales;
    apr_dtype scale_dtype;             /* what the scales' bits are: F32, F16, BF16, F8_E4M3, E8M0; U8 with nested */
    bool scales_down;                  /* [groups, rows], not [rows / scale_rows, groups] */
    int64_t scale_rows, scale_columns; /* what one scale covers, within one matrix: the last ones of a matrix may cover less. With
                                        * APR_CODES_HIGH_FIRST scale_columns numbers of the string, wherever its rows end */
    const apr_nested_scales *nested;   /* NULL: scales are what their bits say */
    const apr_tensor *commons;         /* F32, one or one a matrix of the stack; NULL: 1 */
    bool divides;                      /* by the common one */

    apr_zero_order zero_order;
    const apr_tensor *zeros; /* NULL with APR_ZEROS_NONE */
    int zero_bias;

    const apr_tensor *groups; /* I32 [columns] (a row of it a matrix where there are several): the group of each column; NULL:
                               * column / scale_columns */

    const apr_tensor *const *parts; /* [n_parts] all of the above and what else belongs to it (weight_shape, ...): carried with it */
    size_t n_parts;
} apr_packing;

/* apr_model.packings: tensors named "X.weight", of type T, dims [.., rows, columns], n_bytes as if plain, a packing and no data, whose
 * parts are among the model's tensors. */

/* Groups across a row, and down one matrix. */
int64_t apr_packing_groups(const apr_packing *packing);
int64_t apr_packing_scale_rows(const apr_packing *packing);
/* Bytes of codes, scales, zero points and what belongs to them, as stored, in the share that `n_rows` rows have of it. */
uint64_t apr_packing_bytes(const apr_packing *packing, int64_t n_rows);

#endif
