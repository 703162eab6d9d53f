/* kernels/out_of_range.h: the stated ranges are what the encoders really hold, and what is outside is counted. */
#include "kernels/out_of_range.h"

#include "formats/number/half.h"
#include "kernels/rows.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BLOCK = 256 };

/* Types of codebooks hold no value alone. These are points with the largest level, as parts of it, the largest at 5. */
static const struct {
    apr_dtype dtype;
    float part[8];
} points[] = {
    {APR_IQ1_S, {1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f, 1.0f / 9.0f, 1.0f / 9.0f}},
    {APR_IQ1_M, {1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f / 9.0f, 1.0f, 1.0f / 9.0f, 1.0f / 9.0f}},
    {APR_IQ2_XXS, {8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 1.0f, 8.0f / 43.0f, 8.0f / 43.0f}},
    {APR_IQ2_XS, {8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 1.0f, 8.0f / 43.0f, 8.0f / 43.0f}},
    {APR_IQ2_S, {8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 8.0f / 43.0f, 1.0f, 8.0f / 43.0f, 8.0f / 43.0f}},
    {APR_IQ3_XXS, {4.0f / 62.0f, 1.0f, 12.0f / 62.0f, 4.0f / 62.0f, 4.0f / 62.0f, 1.0f, 12.0f / 62.0f, 4.0f / 62.0f}},
    {APR_IQ3_S, {3.0f / 15.0f, 1.0f, 1.0f / 15.0f, 1.0f / 15.0f, 3.0f / 15.0f, 1.0f, 1.0f / 15.0f, 1.0f / 15.0f}},
};

/* What becomes of x as the only value that is not 0 in its block, or as the largest level of every point. Q1_0 has no code for 0: there
 * all values are x. */
static float alone(apr_dtype dtype, float x)
{
    float values[BLOCK] = {[5] = x}, again[BLOCK];
    for (size_t p = 0; p < sizeof points / sizeof *points; p++)
        for (int i = 0; i < BLOCK && points[p].dtype == dtype; i++) values[i] = x * points[p].part[i % 8];
    uint8_t bytes[BLOCK * sizeof(double)];
    for (int i = 0; i < BLOCK && dtype == APR_Q1_0; i++) values[i] = x;
    apr_ref_codecs[dtype].encode(values, bytes, BLOCK);
    apr_ref_codecs[dtype].decode(bytes, again, BLOCK);
    return again[5];
}

static float fp8_alone(float x)
{
    float values[BLOCK] = {[5] = x}, scale;
    uint8_t bytes[BLOCK];
    apr_encode_fp8_row(values, bytes, &scale, BLOCK);
    return apr_e4m3_to_f32(bytes[5]) * scale;
}

static void the_bounds_are_held_and_what_is_beyond_is_lost(void **state)
{
    int n_types = 0;
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype dtype = (apr_dtype)d;
        if (!apr_can_encode(dtype)) continue;
        const apr_range range = apr_encode_range(dtype);
        for (int side = 0; side < 2; side++) {
            const float bound = side == 0 ? range.low : range.high, held = dtype == APR_F8_E4M3 ? fp8_alone(bound) : alone(dtype, bound);
            if (!(fabsf(held / bound - 1.0f) < 0.04f)) fail_msg("%s holds %g as %g", apr_dtypes[d].name, (double)bound, (double)held);
            if (range.high == FLT_MAX) continue;
            if (range.overflows) {
                assert_true(isinf(alone(dtype, nextafterf(bound, 2.0f * bound))));
                assert_true(isfinite(apr_encode_bound(dtype, bound)));
                assert_true(held == apr_encode_bound(dtype, bound));
            } else if (fabsf(bound) <= FLT_MAX / 1.3f) {
                const float cut = alone(dtype, bound * 1.3f); /* no range leaves out a quarter of what could be held */
                if (!(fabsf(cut) < fabsf(bound) * 1.15f)) fail_msg("%s holds %g", apr_dtypes[d].name, (double)cut);
            }
        }
        n_types++;
    }
    assert_true(n_types >= 14);
    assert_true(apr_encode_bound(APR_F16, -1.0f) == -65504.0f);
}

static void each_kind_is_counted_and_the_worst_is_remembered(void **state)
{
    const float x[] = {0.0f, 65504.0f, 65519.0f, 65520.0f, -1e38f, 1e38f, NAN, INFINITY, -INFINITY, -70000.0f, 1.0f, FLT_MAX};
    (void)state;
    apr_out_of_range m = apr_find_out_of_range(x, 11, APR_F16);
    assert_int_equal(m.n_nonfinite, 3);
    assert_int_equal(m.n_out_of_range, 4);
    assert_true(m.worst == 1e38f);
    const apr_out_of_range more = apr_find_out_of_range(x + 9, 3, APR_F16), none = apr_find_out_of_range(x, 3, APR_F16);
    apr_out_of_range_merge(&m, &none);
    assert_true(m.worst == 1e38f && m.n_out_of_range == 4);
    apr_out_of_range_merge(&m, &more);
    assert_true(m.worst == FLT_MAX && m.n_out_of_range == 6 && m.n_nonfinite == 3);
    assert_int_equal(apr_find_out_of_range(x, 12, APR_F32).n_out_of_range, 0);
    assert_int_equal(apr_find_out_of_range(x, 12, APR_BF16).n_out_of_range, 1); /* FLT_MAX rounds to infinity there */
    assert_int_equal(apr_find_out_of_range(x, 12, APR_F8_E4M3).n_out_of_range, 0);
    assert_int_equal(apr_find_out_of_range(x, 0, APR_F16).n_out_of_range, 0);
}

static void saturating_leaves_nothing_out_of_range(void **state)
{
    const float x[] = {-1e38f, 1e38f, NAN, -INFINITY, 2.5f};
    float y[5];
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (!apr_can_encode((apr_dtype)d)) continue;
        apr_saturate(x, y, 5, (apr_dtype)d);
        assert_int_equal(apr_find_out_of_range(y, 5, (apr_dtype)d).n_out_of_range, 0);
        assert_true(isnan(y[2]) && y[3] == -INFINITY && y[4] == 2.5f);
    }
}

static void doubles_that_no_float_holds_are_found(void **state)
{
    const double x[] = {1.0, FLT_MAX, 0x1.ffffffp127, -1e300, 1e300, INFINITY, NAN, 0x1.fffffefp127};
    double worst;
    (void)state;
    assert_int_equal(apr_count_beyond_f32(x, 8, &worst), 3);
    assert_true(worst == 1e300);
    assert_int_equal(apr_count_beyond_f32(x, 2, &worst), 0);
    for (int i = 0; i < 8; i++) {
        const bool becomes_infinite = isfinite(x[i]) && isinf((float)x[i]);
        assert_int_equal(apr_count_beyond_f32(x + i, 1, &worst), becomes_infinite);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bounds_are_held_and_what_is_beyond_is_lost),
        cmocka_unit_test(each_kind_is_counted_and_the_worst_is_remembered),
        cmocka_unit_test(saturating_leaves_nothing_out_of_range),
        cmocka_unit_test(doubles_that_no_float_holds_are_found),
    };
    return cmocka_run_group_tests_name("misfits", tests, NULL, NULL);
}
