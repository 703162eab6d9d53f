/* kernels/metrics.h: error figures against sums done by hand. */
#include "kernels/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void figures_of_a_known_pair(void **state)
{
    (void)state;
    const float a[] = {1, 2, 3, 4}, b[] = {1, 2, 3, 2};
    apr_metrics m = apr_metrics_empty();
    apr_metrics_add(&m, a, b, 4);

    assert_float_equal(apr_metrics_rmse(&m), 1.0, 1e-12);                     /* sqrt(4 / 4) */
    assert_float_equal(apr_metrics_relative_error(&m), sqrt(4.0 / 30), 1e-6); /* not sqrt(sum) / n */
    assert_float_equal(apr_metrics_snr_db(&m), 10 * log10(30.0 / 4), 1e-6);
    assert_float_equal(apr_metrics_cosine(&m), 22.0 / sqrt(30.0 * 18.0), 1e-6);
    assert_int_equal(m.max_at, 3);
    assert_float_equal(m.max_error, 2, 0);
}

static void equal_arrays_have_no_error(void **state)
{
    (void)state;
    const float a[] = {0, -1, 5};
    apr_metrics m = apr_metrics_empty();
    apr_metrics_add(&m, a, a, 3);

    assert_true(isinf(apr_metrics_snr_db(&m)));
    assert_float_equal(apr_metrics_cosine(&m), 1, 1e-12);
    assert_float_equal(apr_metrics_relative_error(&m), 0, 0);
    assert_int_equal(m.max_at, -1);
}

static void zeros_cause_no_division_by_zero(void **state)
{
    (void)state;
    const float zero[] = {0, 0}, one[] = {1, 0};
    apr_metrics m = apr_metrics_empty(), n = apr_metrics_empty();
    apr_metrics_add(&m, zero, zero, 2);
    apr_metrics_add(&n, zero, one, 2);

    assert_float_equal(apr_metrics_cosine(&m), 1, 0);
    assert_float_equal(apr_metrics_cosine(&n), 0, 0);
    assert_true(isinf(apr_metrics_relative_error(&n)));
}

static void values_that_are_not_finite_are_counted_and_left_out(void **state)
{
    (void)state;
    const float a[] = {1, NAN, 3, INFINITY}, b[] = {1, 2, 4, INFINITY};
    apr_metrics m = apr_metrics_empty();
    apr_metrics_add(&m, a, b, 4);

    assert_int_equal(m.n_nonfinite, 2);
    assert_float_equal(m.sum_sq_err, 1, 0);
    assert_int_equal(m.max_at, 2);
}

static void pieces_add_up_to_the_whole(void **state)
{
    (void)state;
    float a[100], b[100];
    apr_metrics whole = apr_metrics_empty(), first = apr_metrics_empty(), second = apr_metrics_empty();
    for (int i = 0; i < 100; i++) {
        a[i] = sinf((float)i);
        b[i] = a[i] + (i == 77 ? 0.5f : 0.001f);
    }
    apr_metrics_add(&whole, a, b, 100);
    apr_metrics_add(&first, a, b, 40);
    apr_metrics_add(&second, a + 40, b + 40, 60);
    apr_metrics_merge(&first, &second);

    assert_int_equal(first.max_at, 77);
    assert_int_equal(first.n, whole.n);
    assert_float_equal(first.sum_sq_err, whole.sum_sq_err, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_a_known_pair),         cmocka_unit_test(equal_arrays_have_no_error),
        cmocka_unit_test(zeros_cause_no_division_by_zero), cmocka_unit_test(values_that_are_not_finite_are_counted_and_left_out),
        cmocka_unit_test(pieces_add_up_to_the_whole),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
