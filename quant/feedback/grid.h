/* quant/feedback/grid.h - the decoded form of a block that the search works on: codes, and the scales that turn them into values.
 *
 * Every type that aprkit encodes has this form, for each sub-block:
 *
 *     value = step * code - offset        step = d * scale[sub], offset = dmin * min[sub]
 *
 * computed in float32 exactly as its decoder does. Codes are integers of a range, levels of a table, or the doubled values of E2M1 (0 1
 * 2 3 4 6 8 12 and their negatives). Types without sub-block scales have scale 1. Q4_1 and Q5_1, which add their minimum, have min -1.
 * MXFP4 has its exponent in scale[0], NVFP4 its E4M3 bytes in scale, and d is not used.
 *
 * The table states which parts of a type may change and how far; only unpack and pack know the bytes. */
#ifndef APR_QUANT_GRID_H
#define APR_QUANT_GRID_H

#include "formats/number/dtype.h"
#include "formats/number/half.h"

enum { APR_GRID_ELEMS = 256, APR_GRID_SUBS = 16 }; /* the maximum of all types */

typedef struct apr_grid_block {
    uint16_t d, dmin; /* FP16 */
    int16_t scale[APR_GRID_SUBS], min[APR_GRID_SUBS];
    int8_t code[APR_GRID_ELEMS];
} apr_grid_block;

/* What determines the step of a sub-block. */
typedef enum {
    APR_GRID_HALF,      /* d alone, any half */
    APR_GRID_SUB_SCALE, /* d times an integer for each sub-block */
    APR_GRID_EXPONENT,  /* a power of two */
    APR_GRID_E4M3       /* half of an unsigned E4M3 number */
} apr_grid_steps;

typedef struct apr_grid {
    int elems, sub_elems; /* elements of a block, of a sub-block */
    bool is_e2m1;         /* codes are the doubled values of E2M1 */
    float low, high;      /* range of codes */
    const int8_t *levels; /* the codes, ascending; NULL: all integers of the range, or E2M1 */
    int n_levels;
    apr_grid_steps steps;
    int scale_low, scale_high; /* range of sub-block scales, or of exponents */
    int min_low, min_high;     /* range of sub-block minimums; equal: they are fixed */
    bool fits_min;             /* dmin exists and may be fitted */
    bool min_is_signed;        /* dmin may be negative */
    int scale_reach;           /* how far a search changes scales and minimums at once; 0: by one, see feedback.c */
    int min_reach;
    bool is_on_device; /* kernels/cuda/feedback searches it */
    void (*unpack)(const void *block, apr_grid_block *to);
    void (*pack)(const apr_grid_block *from, void *block);
} apr_grid;

/* NULL for a type that does not have this form. */
const apr_grid *apr_grid_of(apr_dtype dtype);

/* The step of a sub-block. MXFP4: 2^(e-128), half of the byte's exponent value, because codes are doubled; NVFP4 halves as well. */
static inline float apr_grid_step(const apr_grid *grid, uint16_t d, int scale)
{
    if (grid->steps == APR_GRID_EXPONENT) return apr_f32_from_bits(scale < 2 ? 0x00200000u << scale : (uint32_t)(scale - 1) << 23);
    if (grid->steps == APR_GRID_E4M3) return scale == 0x7f ? 0.0f : apr_e4m3_to_f32((uint8_t)scale) * 0.5f;
    return apr_f16_to_f32(d) * (float)scale;
}

static inline float apr_grid_offset(uint16_t dmin, int min) { return min != 0 ? apr_f16_to_f32(dmin) * (float)min : 0.0f; }

#endif
