/* quant/feedback/grid.h - a block of a type as what a search works on: codes, and the scales that make values of them.
 *
 * Every type that we encode is, sub-block by sub-block,
 *
 *     value = step * code - offset        step = d * scale[sub], offset = dmin * min[sub]
 *
 * computed in float32 as its decoder does, bit for bit. Codes are whole numbers of a range, or the doubled values of E2M1 (0 1 2 3 4 6 8
 * 12 and their negatives). Types without scales of sub-blocks have scale 1; Q4_1 and Q5_1, which add their minimum, have min -1; MXFP4
 * has its exponent as scale[0], and d is not used.
 *
 * A row of the table says which of them may move and how far; unpack and pack are the only code that knows bytes. */
#ifndef APR_QUANT_GRID_H
#define APR_QUANT_GRID_H

#include "formats/number/dtype.h"

enum { APR_GRID_ELEMS = 256, APR_GRID_SUBS = 16 }; /* the most of a block */

typedef struct apr_grid_block {
    uint16_t d, dmin; /* halves */
    int16_t scale[APR_GRID_SUBS], min[APR_GRID_SUBS];
    int8_t code[APR_GRID_ELEMS];
} apr_grid_block;

/* What makes a step of a scale. */
typedef enum {
    APR_GRID_HALF,      /* d alone: any half */
    APR_GRID_SUB_SCALE, /* d times a whole number a sub-block */
    APR_GRID_EXPONENT   /* a power of two */
} apr_grid_steps;

typedef struct apr_grid {
    int elems, sub_elems; /* of a block, of a sub-block */
    bool is_e2m1;         /* codes are the doubled values of E2M1 */
    float low, high;      /* codes */
    apr_grid_steps steps;
    int scale_low, scale_high; /* whole numbers of sub-blocks, or exponents */
    int min_low, min_high;     /* equal: they stay */
    bool fits_min;             /* dmin is there and may be fitted */
    bool min_is_signed;        /* dmin may be negative */
    void (*unpack)(const void *block, apr_grid_block *to);
    void (*pack)(const apr_grid_block *from, void *block);
} apr_grid;

/* NULL for a type that is no grid of this kind. */
const apr_grid *apr_grid_of(apr_dtype dtype);

/* Of one sub-block. */
float apr_grid_step(const apr_grid *grid, uint16_t d, int scale);
float apr_grid_offset(uint16_t dmin, int min);

/* --- the rows' functions --- */

#define APR_GRID_LIST(X) \
    X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(MXFP4, mxfp4)

#define X(ID, id)                                                     \
    void apr_grid_unpack_##id(const void *block, apr_grid_block *to); \
    void apr_grid_pack_##id(const apr_grid_block *from, void *block);
APR_GRID_LIST(X)
#undef X

#endif
