/* test_mixed_text.c - windows of two texts in turn, each once before any comes again. */
#include "runtime/calibrate/mixed_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WINDOW = 4 };

/* Window w of a text holds the number `first + w`, WINDOW times. */
static void fill(apr_text_windows *to, int64_t n_windows, int32_t first)
{
    int32_t ids[64 * WINDOW + 3];
    for (int i = 0; i < n_windows * WINDOW + 3; i++) ids[i] = first + i / WINDOW;
    assert_int_equal(apr_text_windows_copy(to, ids, n_windows * WINDOW + 3, WINDOW, NULL), APR_OK);
    assert_int_equal(to->n_windows, n_windows);
}

static void test_in_turn(void **state)
{
    (void)state;
    apr_mixed_text m = {.window = WINDOW};
    int n_seen[200] = {0}, n_in_place = 0;

    fill(&m.texts[0], 5, 0);
    fill(&m.texts[1], 3, 100);
    assert_int_equal(apr_mixed_text_shuffle(&m, 7, NULL), APR_OK);
    for (int64_t i = 0; i < 30; i++) {
        const int32_t *const ids = apr_mixed_text_window(&m, i);
        assert_int_equal(ids[0] >= 100, i % 2);
        assert_int_equal(ids[0], ids[WINDOW - 1]);
        n_seen[ids[0]]++;
        n_in_place += i < 10 && ids[0] == i / 2;
    }
    for (int i = 0; i < 5; i++) assert_int_equal(n_seen[i], 3);
    for (int i = 100; i < 103; i++) assert_int_equal(n_seen[i], 5);
    assert_true(n_in_place < 5);
    apr_mixed_text_close(&m);
}

static void test_one_text_alone(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        apr_mixed_text m = {.window = WINDOW};
        int n_seen[8] = {0};
        fill(&m.texts[k], 8, 0);
        assert_int_equal(apr_mixed_text_shuffle(&m, 1, NULL), APR_OK);
        for (int64_t i = 0; i < 8; i++) n_seen[apr_mixed_text_window(&m, i)[0]]++;
        for (int i = 0; i < 8; i++) assert_int_equal(n_seen[i], 1);
        apr_mixed_text_close(&m);
    }
    apr_mixed_text none = {.window = WINDOW};
    assert_int_equal(apr_mixed_text_shuffle(&none, 1, NULL), APR_E_USAGE);
    apr_mixed_text_close(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_turn), cmocka_unit_test(test_one_text_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
