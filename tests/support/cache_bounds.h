/* cache_bounds.h - what keeping keys and values in a type may cost, from the type's own precision.
 *
 * Rounding changes each stored number by a relative error whose root mean square r follows from the type. Attention is linear in the
 * values and, to first order, in the keys, so the logits as vectors move by about r, whatever the model: with the bundled ones by 0.9
 * to 1.0 r in each type. Cutting mantissas off instead of rounding them, or one bit less of mantissa, is 1.7 r in FP8: so the bound is
 * 1.5 r. Less than half of it is as suspicious: then something else was stored. */
#ifndef APR_TESTS_CACHE_BOUNDS_H
#define APR_TESTS_CACHE_BOUNDS_H

#include "formats/number/dtype.h"

#include <stddef.h>

/* |a - b| / |b|, as vectors; NaN when there is one. */
double relative_distance(const float *a, const float *b, size_t n);

/* r of a number stored as F16, Q8_0 or F8_E4M3; of F32, what float32 sums in another order cost. */
double cache_roundoff(apr_dtype dtype);

#endif
