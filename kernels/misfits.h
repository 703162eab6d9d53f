/* kernels/misfits.h - values that a type cannot hold: what encoding changes by more than rounding.
 *
 * Every type has a range of float32. Inside it a value is rounded; a finite value outside is lost: in f16 and bf16 it becomes
 * infinite, in blocks it is cut off at the bound. Bounds are those of a block that is made for that value alone, so a value that
 * passes may still be rounded coarsely beside larger ones: that is what metrics are for. NaN and infinities are counted apart
 * (kernels/rows.h says what becomes of them). */
#ifndef APR_KERNELS_MISFITS_H
#define APR_KERNELS_MISFITS_H

#include "formats/number/dtype.h"

typedef struct apr_range {
    float low, high;
    bool overflows; /* what is outside becomes infinite; otherwise the bound */
} apr_range;

/* Of a type that can be encoded. FP8 has a scale for each row, and holds what float32 does. */
apr_range apr_encode_range(apr_dtype dtype);
/* The bound on x's side as the type stores it: 65504 for f16. */
float apr_encode_bound(apr_dtype dtype, float x);

typedef struct apr_misfits {
    int64_t n_unusual; /* NaN and infinities */
    int64_t n_beyond;  /* finite, outside the range */
    float worst;       /* of these the one with the largest magnitude, the positive one of equals; 0: none */
} apr_misfits;

apr_misfits apr_find_misfits(const float *x, int64_t n_elems, apr_dtype to);
/* Adds those of a later piece. */
void apr_misfits_merge(apr_misfits *misfits, const apr_misfits *later);

/* dst = src with finite values outside the range at its bound; NaN and infinities stay. */
void apr_saturate(const float *src, float *dst, int64_t n_elems, apr_dtype to);

/* Doubles that are finite and have no float32: everything is encoded through float32. *worst: as above. */
int64_t apr_count_beyond_f32(const void *doubles, int64_t n_elems, double *worst);

#endif
