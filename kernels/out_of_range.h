/* kernels/out_of_range.h - values out of a type's range: what encoding changes by more than rounding.
 *
 * Every type has a range of float32 values. Inside it a value is rounded. A finite value outside is lost: in f16 and bf16 it becomes
 * infinite, in block types it is clamped to the bound. The bounds are those of a block whose scale suits that value alone, so a value in
 * range may still be rounded coarsely next to larger ones; metrics measure that. NaN and infinities are counted separately
 * (kernels/rows.h says how they are encoded). */
#ifndef APR_KERNELS_OUT_OF_RANGE_H
#define APR_KERNELS_OUT_OF_RANGE_H

#include "formats/number/dtype.h"

typedef struct apr_range {
    float low, high;
    bool overflows; /* values outside become infinite; otherwise they become the bound */
} apr_range;

/* The range of a type that can be encoded. FP8 has a scale for each row, and holds the range of float32. */
apr_range apr_encode_range(apr_dtype dtype);
/* The bound with the sign of x, as the type stores it: 65504 for f16. */
float apr_encode_bound(apr_dtype dtype, float x);

typedef struct apr_out_of_range {
    int64_t n_nonfinite;    /* NaN and infinities */
    int64_t n_out_of_range; /* finite, outside the range */
    float worst;            /* the one of these with the largest magnitude; for equal magnitudes the positive one; 0: none */
} apr_out_of_range;

/* Counts NaN and infinities. */
int64_t apr_count_nonfinite(const float *x, int64_t n_elems);

apr_out_of_range apr_find_out_of_range(const float *x, int64_t n_elems, apr_dtype to);
/* Adds the counts of a later piece. */
void apr_out_of_range_merge(apr_out_of_range *out_of_range, const apr_out_of_range *later);

/* dst = src with finite values clamped to the range; NaN and infinities stay. */
void apr_saturate(const float *src, float *dst, int64_t n_elems, apr_dtype to);

/* Counts finite doubles that overflow float32: everything is encoded through float32. *worst: as above. */
int64_t apr_count_beyond_f32(const void *doubles, int64_t n_elems, double *worst);

#endif
