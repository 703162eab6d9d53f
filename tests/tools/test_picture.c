/* tools/report/chart.h, plot.h: round numbers at an axis, the positions of points of curves, and texts that stay inside. */
#define _POSIX_C_SOURCE 200809L
#include "tools/report/chart.h"
#include "tools/report/plot.h"
#include "tools/report/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void steps_are_round_and_few(void **state)
{
    (void)state;
    assert_true(fabs(apr_axis_step(600.0, 10) - 100.0) < 1e-9);
    assert_true(fabs(apr_axis_step(0.0031, 6) - 0.001) < 1e-12);
    for (double largest = 1e-6; largest < 1e9; largest *= 1.37) {
        const double step = apr_axis_step(largest, 6), first = step / pow(10.0, floor(log10(step * 1.000001)));
        assert_true(largest / step <= 6.0 && largest / step > 6.0 / 2.6);
        assert_true(fabs(first - 1.0) < 1e-6 || fabs(first - 2.0) < 1e-6 || fabs(first - 5.0) < 1e-6);
    }
    assert_true(apr_axis_step(0.0, 6) == 1.0 && apr_axis_step(-3.0, 6) == 1.0);
    assert_true(apr_axis_step((double)NAN, 6) == 1.0 && apr_axis_step((double)INFINITY, 6) == 1.0);
}

/* The drawing for wide screens, without the one for narrow screens and without the values. */
static char *drawn(const apr_curves *curves)
{
    char *text = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&text, &n);

    assert_non_null(out);
    apr_chart_curves(out, curves);
    assert_int_equal(fclose(out), 0);
    char *const end = strstr(text, "</svg>");
    assert_non_null(end);
    assert_non_null(strstr(end, "<svg class=\"narrow\""));
    end[strlen("</svg>")] = '\0';
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
    assert_int_equal(count(text, ">200</text>"), 1);           /* the axis ends at the largest value: the range does not set it */
    assert_int_equal(count(text, ">250</text>"), 0);
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
    assert_int_equal(count(text, "class=\"ink halo\""), 0);
    free(text);
}

/* Left and right end of a text, and its base line. */
typedef struct place {
    double left, right, base;
} place;

static int texts(const char *drawing, place *places, int most)
{
    int n = 0;

    for (const char *at = strstr(drawing, "<text"); at != NULL && n < most; at = strstr(at + 1, "<text")) {
        const char *const body = strchr(at, '>') + 1;
        char text[160], *end;
        snprintf(text, sizeof text, "%.*s", (int)(strstr(body, "</text>") - body), body);
        const double x = strtod(strstr(at, " x=\"") + 4, &end), width = apr_plot_text_width(text);
        const char *const anchor = strstr(end, "text-anchor=\"");
        const double before = anchor == NULL || anchor > body ? 0.0 : strncmp(anchor + 13, "middle", 6) == 0 ? 0.5 : 1.0;
        places[n++] = (place){x - before * width, x + (1.0 - before) * width, strtod(end + 5, NULL)};
    }
    return n;
}

/* On both widths of screen, with rates of two to seven digits. */
static void texts_do_not_overlap(void **state)
{
    (void)state;
    const int64_t at[] = {0, 4, 8};
    place places[64];

    for (double rate = 12.3; rate < 9e6; rate *= 1.13) {
        const double values[] = {rate, 0.98 * rate, 0.7 * rate};
        const apr_curve curve = {.name = "n", .values = values};
        char *text = NULL;
        size_t n_bytes = 0;
        FILE *const out = open_memstream(&text, &n_bytes);
        assert_non_null(out);
        apr_chart_curves(out,
                         &(apr_curves){.label = "l", .unit = "u", .across = "a", .at = at, .n_points = 3, .curves = &curve, .n_curves = 1});
        assert_int_equal(fclose(out), 0);
        char *const narrow = strstr(text, "<svg class=\"narrow\"");
        assert_non_null(narrow);
        narrow[-1] = '\0';
        for (const char *drawing = text; drawing != NULL; drawing = drawing == text ? narrow : NULL) {
            const int n = texts(drawing, places, 64);
            assert_in_range(n, 7, 63);
            for (int i = 0; i < n; i++)
                for (int k = 0; k < i; k++)
                    assert_false(fabs(places[i].base - places[k].base) < 10.0 && places[i].left < places[k].right - 0.5 &&
                                 places[k].left < places[i].right - 0.5);
        }
        free(text);
    }
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

    assert_int_equal(count(text, ">1,000</text>"), 1);
    assert_int_equal(count(text, ">1,001</text>"), 0);
    free(text);
}

/* Draws a text that would be cut at each side. */
static void draw_at_edges(apr_plot *p, const void *of)
{
    (void)of;
    apr_plot_text(p, 0.0, 20.0, APR_TEXT_MIDDLE, "", "a long text");
    apr_plot_text(p, p->width, 40.0, APR_TEXT_MIDDLE, "", "a long text");
    apr_plot_text(p, p->width, 60.0, APR_TEXT_START, "", "a<b");
    apr_plot_text(p, 0.0, 80.0, APR_TEXT_END, "", "12");
}

static void a_text_is_moved_where_it_would_be_cut(void **state)
{
    const double widths[] = {960.0, 360.0}, half = apr_plot_text_width("a long text") / 2.0;
    char *text = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&text, &n);

    (void)state;
    assert_non_null(out);
    apr_plot_twice(out, "l", 100, 100, draw_at_edges, NULL);
    assert_int_equal(fclose(out), 0);
    const char *at = text;
    for (int i = 0; i < 2; i++) {
        const double wanted[] = {2.0 + half, widths[i] - 2.0 - half, widths[i] - 2.0 - apr_plot_text_width("a<b"),
                                 2.0 + apr_plot_text_width("12")};
        for (int k = 0; k < 4; k++) {
            at = strstr(at, "<text x=\"");
            assert_non_null(at);
            assert_true(fabs(strtod(at + 9, NULL) - wanted[k]) < 0.06);
            at++;
        }
    }
    assert_int_equal(count(text, "a&lt;b"), 2);
    free(text);
}

static void decades_are_written_out_where_people_read_them(void **state)
{
    const apr_axis axis = apr_axis_decades("y", 0.0004, 30.0, 6), few = apr_axis_decades("y", 1e-12, 30.0, 6);

    (void)state;
    assert_true(axis.low == -4.0 && axis.high == 2.0);
    assert_true(few.low == -4.0); /* at most six */
    const apr_axis none = apr_axis_decades("y", (double)INFINITY, 0.0, 6);
    assert_true(none.high > none.low);
    const apr_axis linear = apr_axis_linear("x", 0.3, 6);
    assert_true(fabs(linear.high - 0.3) < 1e-12 && fabs(linear.step - 0.05) < 1e-12);
}

static void numbers_have_separators_and_no_exponent_where_people_read_them(void **state)
{
    static const struct {
        double value;
        int decimals;
        const char *text;
    } cases[] = {{1234567.891, 1, "1,234,567.9"}, {0.001, 3, "0.001"},  {9999999.0, 0, "9,999,999"}, {-1234.5, 2, "-1,234.50"},
                 {0.00004, 3, "4.00e-05"},        {0.0, 3, "0.000"},    {0.0004, 4, "0.0004"},       {999.9996, 3, "1,000.000"},
                 {(double)NAN, 2, "not finite"},  {2e20, 0, "2.00e+20"}};
    char text[APR_SMALL_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(apr_number_text(text, cases[i].value, cases[i].decimals), cases[i].text);
    assert_int_equal(apr_decimals_of(12.3456, 4), 2);
    assert_int_equal(apr_decimals_of(0.000123, 3), 6);
    assert_int_equal(apr_decimals_of(1000.0, 3), 0);
    assert_int_equal(apr_decimals_of(0.001, 1), 3);
    assert_int_equal(apr_decimals_of(1e-30, 3), 9);
    assert_int_equal(apr_decimals_of((double)INFINITY, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_round_and_few),
        cmocka_unit_test(doubling_is_as_far_everywhere_and_twice_as_much_twice_as_high),
        cmocka_unit_test(two_curves_have_two_colours_and_no_numbers),
        cmocka_unit_test(texts_do_not_overlap),
        cmocka_unit_test(one_point_alone_and_values_of_zero_can_be_drawn),
        cmocka_unit_test(numbers_that_would_touch_are_left_out),
        cmocka_unit_test(a_text_is_moved_where_it_would_be_cut),
        cmocka_unit_test(decades_are_written_out_where_people_read_them),
        cmocka_unit_test(numbers_have_separators_and_no_exponent_where_people_read_them),
    };
    return cmocka_run_group_tests_name("picture", tests, NULL, NULL);
}
