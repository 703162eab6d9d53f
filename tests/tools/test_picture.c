/* tools/cli/chart.h: round numbers at an axis, and the positions of points of curves. */
#define _POSIX_C_SOURCE 200809L
#include "tools/report/chart.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void steps_are_round_and_few(void **state)
{
    (void)state;
    assert_true(fabs(apr_chart_step(600.0, 10) - 100.0) < 1e-9);
    assert_true(fabs(apr_chart_step(0.0031, 6) - 0.001) < 1e-12);
    for (double largest = 1e-6; largest < 1e9; largest *= 1.37) {
        const double step = apr_chart_step(largest, 6), first = step / pow(10.0, floor(log10(step * 1.000001)));
        assert_true(largest / step <= 6.0 && largest / step > 6.0 / 2.6);
        assert_true(fabs(first - 1.0) < 1e-6 || fabs(first - 2.0) < 1e-6 || fabs(first - 5.0) < 1e-6);
    }
    assert_true(apr_chart_step(0.0, 6) == 1.0 && apr_chart_step(-3.0, 6) == 1.0);
    assert_true(apr_chart_step((double)NAN, 6) == 1.0 && apr_chart_step((double)INFINITY, 6) == 1.0);
}

static char *drawn(const apr_curves *curves)
{
    char *text = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&text, &n);

    assert_non_null(out);
    apr_chart_curves(out, curves);
    assert_int_equal(fclose(out), 0);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) n++;
    return n;
}

/* Positions of all circles, in their order. */
static int circles(const char *text, double x[8], double y[8])
{
    int n = 0;
    for (const char *at = strstr(text, " cx=\""); at != NULL && n < 8; at = strstr(at + 1, " cx=\""), n++) {
        char *end;
        x[n] = strtod(at + 5, &end);
        y[n] = strtod(end + 6, NULL);
    }
    return n;
}

static void doubling_is_as_far_everywhere_and_twice_as_much_twice_as_high(void **state)
{
    (void)state;
    const int64_t at[] = {1, 2, 4};
    const double values[] = {50.0, 100.0, 200.0}, low[] = {40.0, 90.0, 150.0}, high[] = {60.0, 110.0, 210.0};
    const apr_curve curve = {.name = "n", .values = values, .low = low, .high = high};
    double x[8], y[8];
    char *const text = drawn(&(apr_curves){
        .label = "l", .unit = "u", .across = "a", .at = at, .n_points = 3, .by_ratio = true, .curves = &curve, .n_curves = 1});

    assert_int_equal(circles(text, x, y), 3);
    assert_true(fabs((x[1] - x[0]) - (x[2] - x[1])) < 0.11);
    assert_true(fabs(2.0 * (y[0] - y[1]) - (y[1] - y[2])) < 0.21);
    assert_int_equal(count(text, "class=\"line-one\" x1"), 3); /* from the lowest to the highest */
    assert_int_equal(count(text, ">250</text>"), 1);           /* the axis goes beyond the highest */
    assert_int_equal(count(text, "<svg "), count(text, "</svg>"));
    free(text);
}

static void two_curves_have_two_colours_and_no_numbers(void **state)
{
    (void)state;
    const int64_t at[] = {0, 10, 40};
    const double one[] = {1.0, 2.0, 3.0}, two[] = {2.0, 4.0, 5.5};
    const apr_curve curves[] = {{.name = "one", .values = one}, {.name = "two", .values = two}};
    double x[8], y[8];
    char *const text =
        drawn(&(apr_curves){.label = "l", .unit = "u", .across = "a", .at = at, .n_points = 3, .curves = curves, .n_curves = 2});

    assert_int_equal(circles(text, x, y), 6);
    assert_true(fabs(4.0 * (x[1] - x[0]) - (x[2] - x[0])) < 0.31 && x[3] == x[0]);
    assert_true(y[3] == y[1]); /* both 2 */
    assert_int_equal(count(text, "fill-one"), 3);
    assert_int_equal(count(text, "fill-two"), 3);
    assert_int_equal(count(text, "class=\"ink\""), 0);
    free(text);
}

static void one_point_alone_and_values_of_zero_can_be_drawn(void **state)
{
    (void)state;
    const int64_t at[] = {7};
    const double zero[] = {0.0};
    const apr_curve curve = {.name = "n", .values = zero};
    double x[8], y[8];
    char *const text = drawn(&(apr_curves){
        .label = "l", .unit = "u", .across = "a", .at = at, .n_points = 1, .by_ratio = true, .curves = &curve, .n_curves = 1});

    assert_int_equal(circles(text, x, y), 1);
    assert_true(x[0] > 400.0 && x[0] < 600.0);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
}

static void numbers_that_would_touch_are_left_out(void **state)
{
    (void)state;
    const int64_t at[] = {1, 1000, 1001};
    const double values[] = {1.0, 2.0, 3.0};
    const apr_curve curve = {.name = "n", .values = values};
    char *const text =
        drawn(&(apr_curves){.label = "l", .unit = "u", .across = "a", .at = at, .n_points = 3, .curves = &curve, .n_curves = 1});

    assert_int_equal(count(text, ">1000</text>"), 1);
    assert_int_equal(count(text, ">1001</text>"), 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_round_and_few),
        cmocka_unit_test(doubling_is_as_far_everywhere_and_twice_as_much_twice_as_high),
        cmocka_unit_test(two_curves_have_two_colours_and_no_numbers),
        cmocka_unit_test(one_point_alone_and_values_of_zero_can_be_drawn),
        cmocka_unit_test(numbers_that_would_touch_are_left_out),
    };
    return cmocka_run_group_tests_name("picture", tests, NULL, NULL);
}
