/* cache_bounds.c - root mean squares of rounding errors. */
#include "tests/support/cache_bounds.h"

#include <math.h>

double relative_distance(const float *a, const float *b, size_t n)
{
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

/* Significands are spread evenly by their logarithm over [1, 2): the mean of 1 / significand^2 is 3 / (8 ln 2). Rounding to
 * `mantissa_bits` is wrong by up to half a step of 2^-mantissa_bits, evenly. */
static double of_mantissa(int mantissa_bits) { return ldexp(0.5, -mantissa_bits) / sqrt(3.0) * sqrt(3.0 / (8.0 * log(2.0))); }

double cache_roundoff(apr_dtype dtype)
{
    if (dtype == APR_F16) return of_mantissa(10);
    if (dtype == APR_F8_E4M3) return of_mantissa(3);
    /* steps of the largest of 32 normal numbers, 2.1 standard deviations, over 127 */
    if (dtype == APR_Q8_0) return 2.1 / 127.0 * 0.5 / sqrt(3.0);
    return 1e-6;
}
