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
 * In the IQ types eight codes are one or two points of a codebook, with signs or a shift: not every combination of codes exists, and
 * points_search.h finds the best one. Scales are as they are stored. IQ1_S has the shift of a sub-block in min, which is not subtracted;
 * its codes, and those of IQ1_M, are eight times the shifted levels.
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
    APR_GRID_E4M3,      /* half of an unsigned E4M3 number */
    APR_GRID_POINTS     /* d times a multiple of the stored scale (apr_points) */
} apr_grid_steps;

enum { APR_GRID_GROUP = 8 }; /* codes of a group of a codebook */

/* The codebook of a type. */
typedef struct apr_points {
    const struct iq_type *type;              /* kernels/ref/iq_types.h */
    const struct apr_iq_book *(*book)(void); /* kernels/ref/iq_book.h */
    float unit;                              /* level = unit * code */
    float first, gap;                        /* step = d * (first + gap * stored), first and gap times the unit and the type's factor */
} apr_points;

typedef struct apr_grid {
    int elems, sub_elems; /* elements of a block, of a sub-block */
    bool is_e2m1;         /* codes are the doubled values of E2M1 */
    float low, high;      /* range of codes */
    const int8_t *levels; /* the codes, ascending; NULL: all integers of the range, or E2M1 */
    int n_levels;
    const apr_points *points; /* NULL: a code of a block may be any, whatever the others are */
    apr_grid_steps steps;
    int scale_low, scale_high; /* range of sub-block scales, or of exponents */
    int min_low, min_high;     /* range of sub-block minimums; equal: they are fixed */
    bool fits_min;             /* dmin exists and may be fitted */
    bool min_is_signed;        /* dmin may be negative */
    int scale_reach;           /* how far a search changes scales and minimums at once; 0: by one, see feedback.c */
    int min_reach;
    void (*unpack)(const void *block, apr_grid_block *to);
    void (*pack)(const apr_grid_block *from, void *block);
} apr_grid;

/* The codebooks, by type; NULL: another type. */
const apr_grid *apr_points_grid_of(apr_dtype dtype);

/* NULL for a type that does not have this form. */
const apr_grid *apr_grid_of(apr_dtype dtype);

/* What d is multiplied by. Exact: a few bits. */
static inline float apr_grid_multiple(const apr_grid *grid, int scale)
{
    return grid->points != NULL ? grid->points->first + grid->points->gap * (float)scale : (float)scale;
}

/* The step of a sub-block. MXFP4: 2^(e-128), half of the byte's exponent value, because codes are doubled; NVFP4 halves as well. */
static inline float apr_grid_step(const apr_grid *grid, uint16_t d, int scale)
{
    if (grid->steps == APR_GRID_EXPONENT) return apr_f32_from_bits(scale < 2 ? 0x00200000u << scale : (uint32_t)(scale - 1) << 23);
    if (grid->steps == APR_GRID_E4M3) return scale == 0x7f ? 0.0f : apr_e4m3_to_f32((uint8_t)scale) * 0.5f;
    return apr_f16_to_f32(d) * apr_grid_multiple(grid, scale);
}

static inline float apr_grid_offset(uint16_t dmin, int min) { return min != 0 ? apr_f16_to_f32(dmin) * (float)min : 0.0f; }

#endif
