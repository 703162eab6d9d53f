/* runtime/check/bootstrap.h: what drawing windows again and again must come to. */
#include "runtime/check/bootstrap.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_WINDOWS = 400, WINDOW = 8 };

static apr_divergence with_windows(apr_window_sums *windows, size_t n)
{
    return (apr_divergence){.windows = windows, .n_windows = n, .window = WINDOW};
}

static apr_divergence_intervals intervals_of(const apr_divergence *d, uint64_t seed)
{
    apr_divergence_intervals intervals;
    assert_int_equal(apr_divergence_bootstrap(d, seed, &intervals, NULL), APR_OK);
    return intervals;
}

/* Windows whose mean divergence is 0.2 with a deviation of 0.1 among them: half of them 0.1, half 0.3. */
static void fill_two_kinds(apr_window_sums *windows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool is_high = i % 2 != 0;
        windows[i] = (apr_window_sums){.kl = WINDOW * (is_high ? 0.3 : 0.1),
                                       .n_rows = WINDOW,
                                       .n_same_top = is_high ? 4 : 6,
                                       .n_scored = WINDOW - 1,
                                       .nll_reference = (WINDOW - 1) * log(8.0),
                                       .nll_other = (WINDOW - 1) * (is_high ? log(10.0) : log(8.0))};
    }
}

static void near(double found, double wanted, double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance)) fail_msg("%.17g is not %.17g", found, wanted);
}

static void an_interval_is_as_wide_as_the_theorem_of_large_numbers_says(void **state)
{
    (void)state;
    apr_window_sums windows[N_WINDOWS];
    fill_two_kinds(windows, N_WINDOWS);
    const apr_divergence d = with_windows(windows, N_WINDOWS);
    const apr_divergence_intervals i = intervals_of(&d, 1);
    const double wide = 1.96 * 0.1 / sqrt(N_WINDOWS);
    near(i.mean.low, 0.2 - wide, 0.1 * wide);
    near(i.mean.high, 0.2 + wide, 0.1 * wide);
    near(i.same_top.low, 0.625 - 1.25 * wide, 0.15 * wide);
    near(i.same_top.high, 0.625 + 1.25 * wide, 0.15 * wide);
}

static void what_is_the_same_in_all_windows_is_certain(void **state)
{
    (void)state;
    apr_window_sums windows[N_WINDOWS];
    fill_two_kinds(windows, N_WINDOWS);
    const apr_divergence d = with_windows(windows, N_WINDOWS);
    const apr_divergence_intervals i = intervals_of(&d, 1);
    near(i.perplexity_reference.low, 8.0, 1e-9);
    near(i.perplexity_reference.high, 8.0, 1e-9);
    assert_true(i.perplexity_other.low > 8.0 && i.perplexity_other.high < 10.0);
    /* drawn in pairs: the ratio and the difference go with it */
    near(i.ratio.low, i.perplexity_other.low / 8.0, 1e-9);
    near(i.difference.high, i.perplexity_other.high - 8.0, 1e-9);
}

static void the_seed_decides_and_nothing_else(void **state)
{
    (void)state;
    apr_window_sums windows[20];
    fill_two_kinds(windows, 20);
    const apr_divergence d = with_windows(windows, 20);
    const apr_divergence_intervals first = intervals_of(&d, 7), again = intervals_of(&d, 7);
    assert_memory_equal(&first, &again, sizeof first);
    apr_window_sums uneven[20];
    for (int i = 0; i < 20; i++) uneven[i] = (apr_window_sums){.kl = 0.01 * i * i, .n_rows = WINDOW, .n_scored = 1};
    const apr_divergence e = with_windows(uneven, 20);
    assert_true(intervals_of(&e, 7).mean.low != intervals_of(&e, 8).mean.low);
}

static void one_window_says_nothing_about_others(void **state)
{
    (void)state;
    apr_window_sums windows[1];
    fill_two_kinds(windows, 1);
    const apr_divergence d = with_windows(windows, 1);
    const apr_divergence_intervals i = intervals_of(&d, 1);
    assert_true(isnan(i.mean.low) && isnan(i.mean.high) && isnan(i.ratio.high) && isnan(i.same_top.low));
}

static void a_nan_has_no_interval_and_spoils_no_other(void **state)
{
    (void)state;
    apr_window_sums windows[20];
    fill_two_kinds(windows, 20);
    windows[3].kl = NAN;
    const apr_divergence d = with_windows(windows, 20);
    const apr_divergence_intervals i = intervals_of(&d, 1);
    assert_true(isnan(i.mean.low) && isnan(i.mean.high));
    assert_true(i.same_top.low < i.same_top.high);
    for (int k = 0; k < 20; k++) windows[k].n_scored = 0; /* windows of one token have no perplexity */
    assert_true(isnan(intervals_of(&d, 1).ratio.low));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interval_is_as_wide_as_the_theorem_of_large_numbers_says),
        cmocka_unit_test(what_is_the_same_in_all_windows_is_certain),
        cmocka_unit_test(the_seed_decides_and_nothing_else),
        cmocka_unit_test(one_window_says_nothing_about_others),
        cmocka_unit_test(a_nan_has_no_interval_and_spoils_no_other),
    };
    return cmocka_run_group_tests_name("intervals", tests, NULL, NULL);
}
