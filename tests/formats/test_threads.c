/* formats/base/threads.h: all threads or one, by the size of the work. */
#include "formats/base/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void small_work_wakes_no_thread(void **state)
{
    (void)state;
    assert_int_equal(apr_threads(2, 1000, 0.0), 1);
    assert_int_equal(apr_threads(2, 1000, 100e3), 1); /* some ten microseconds */
    assert_int_equal(apr_threads(64, 1000, 100e3), 1);
}

static void large_work_is_for_all(void **state)
{
    (void)state;
    assert_int_equal(apr_threads(2, 1000, 1e6), 2);
    assert_int_equal(apr_threads(64, 1000, 1e6), 64);
    assert_int_equal(apr_threads(64, 2, 1e300), 64);
}

/* libgomp ends threads when a region has fewer than the last, and starts them again: a number in between would cost more than it saves. */
static void there_is_no_number_in_between(void **state)
{
    (void)state;
    for (int most = 1; most <= 1024; most *= 2)
        for (double steps = 1.0; steps < 1e12; steps *= 1.5) {
            const int n = apr_threads(most, 1 << 20, steps);
            assert_true(n == 1 || n == most);
        }
}

static void more_threads_are_woken_only_for_more_work(void **state)
{
    (void)state;
    const double least = APR_OPS_ONE_THREAD + 2.0 * APR_OPS_PER_THREAD;
    assert_int_equal(apr_threads(2, 8, least), 2);
    assert_int_equal(apr_threads(2, 8, least - 1.0), 1);
    assert_int_equal(apr_threads(64, 8, least), 1);
    assert_int_equal(apr_threads(64, 8, APR_OPS_ONE_THREAD + 64.0 * APR_OPS_PER_THREAD), 64);
}

static void what_cannot_be_divided_is_not(void **state)
{
    (void)state;
    assert_int_equal(apr_threads(8, 1, 1e12), 1);
    assert_int_equal(apr_threads(8, 0, 1e12), 1);
}

static void all_threads_are_what_openmp_says(void **state)
{
    (void)state;
    const int before = apr_all_threads();
    omp_set_num_threads(before + 3);
    assert_int_equal(apr_all_threads(), before + 3);
    omp_set_num_threads(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_work_wakes_no_thread),    cmocka_unit_test(large_work_is_for_all),
        cmocka_unit_test(there_is_no_number_in_between), cmocka_unit_test(more_threads_are_woken_only_for_more_work),
        cmocka_unit_test(what_cannot_be_divided_is_not), cmocka_unit_test(all_threads_are_what_openmp_says),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
