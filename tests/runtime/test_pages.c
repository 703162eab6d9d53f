/* runtime/session/pages.h: pages are given, shared and given back, and none is had by two that do not know of it. */
#include "runtime/session/pages.h"

#include "formats/base/random.h"
#include "tests/support/failing_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static apr_pages open_pages(int64_t n_pages, int64_t n_sequences, int64_t n_ctx)
{
    apr_pages p;
    assert_int_equal(apr_pages_open(&p, n_pages, n_sequences, n_ctx, NULL), APR_OK);
    return p;
}

static void a_sequence_has_a_page_for_each_64_positions_that_it_comes_to(void **state)
{
    apr_pages p = open_pages(4, 2, 256);
    (void)state;
    assert_int_equal(apr_pages_extend(&p, 0, 1, NULL), APR_OK);
    assert_int_equal(p.n_free, 3);
    assert_int_equal(apr_pages_extend(&p, 0, 64, NULL), APR_OK);
    assert_int_equal(p.n_free, 3);
    assert_int_equal(apr_pages_extend(&p, 0, 65, NULL), APR_OK);
    assert_int_equal(p.n_free, 2);
    assert_int_equal(apr_pages_extend(&p, 0, 3, NULL), APR_OK); /* it has them already */
    assert_int_equal(p.n_held[0], 2);
    apr_pages_close(&p);
}

static void a_request_that_does_not_fit_changes_nothing(void **state)
{
    apr_pages p = open_pages(3, 2, 256);
    apr_error err = {0};
    (void)state;
    assert_int_equal(apr_pages_extend(&p, 0, 128, NULL), APR_OK);
    assert_int_equal(apr_pages_extend(&p, 1, 65, &err), APR_E_NO);
    assert_non_null(strstr(err.text, "1 of 3 are free"));
    assert_int_equal(p.n_free, 1);
    assert_int_equal(p.n_held[1], 0);
    assert_int_equal(apr_pages_extend(&p, 1, 257, NULL), APR_E_NO); /* longer than a context */
    apr_pages_close(&p);
}

static void a_shared_page_is_free_when_the_last_gives_it_back(void **state)
{
    apr_pages p = open_pages(4, 3, 256);
    (void)state;
    assert_int_equal(apr_pages_extend(&p, 0, 192, NULL), APR_OK);
    apr_pages_share(&p, 0, 1, 128);
    assert_int_equal(p.n_free, 1);
    assert_memory_equal(apr_pages_of(&p, 1), apr_pages_of(&p, 0), 2 * sizeof(int32_t));
    apr_pages_release(&p, 0);
    assert_int_equal(p.n_free, 2);
    apr_pages_share(&p, 1, 2, 64);
    apr_pages_release(&p, 1);
    assert_int_equal(p.n_free, 3);
    apr_pages_release(&p, 2);
    assert_int_equal(p.n_free, 4);
    apr_pages_close(&p);
}

/* Whatever is done, each page is free or has as many users as tables name it. */
static void no_page_is_lost_or_had_twice(void **state)
{
    enum { N_PAGES = 23, N_SEQUENCES = 5 };
    apr_pages p = open_pages(N_PAGES, N_SEQUENCES, 64 * 9);
    uint64_t seed = 7;
    (void)state;
    for (int turn = 0; turn < 5000; turn++) {
        const int64_t i = (int64_t)(apr_random(&seed) % N_SEQUENCES), j = (int64_t)(apr_random(&seed) % N_SEQUENCES);
        const uint64_t what = apr_random(&seed) % 4;
        if (what < 2) (void)apr_pages_extend(&p, i, (int64_t)(apr_random(&seed) % (64 * 11)), NULL);
        else if (what == 2) apr_pages_release(&p, i);
        else if (i != j && p.n_held[j] == 0) apr_pages_share(&p, i, j, p.n_held[i] / 2 * 64);
        int n_uses[N_PAGES] = {0};
        for (int64_t s = 0; s < N_SEQUENCES; s++)
            for (int64_t k = 0; k < p.n_held[s]; k++) n_uses[apr_pages_of(&p, s)[k]]++;
        for (int64_t k = 0; k < p.n_free; k++) assert_int_equal(n_uses[p.free[k]], 0);
        int64_t n_used = 0;
        for (int k = 0; k < N_PAGES; k++) {
            assert_int_equal(n_uses[k], p.n_uses[k]);
            n_used += n_uses[k] > 0;
        }
        assert_int_equal(n_used + p.n_free, N_PAGES);
    }
    apr_pages_close(&p);
}

static void what_cannot_be_kept_is_refused(void **state)
{
    apr_pages p = open_pages(1, 1, 64); /* the smallest */
    (void)state;
    apr_pages_close(&p);
    assert_int_equal(apr_pages_open(&p, 0, 1, 64, NULL), APR_E_USAGE);
    assert_int_equal(apr_pages_open(&p, 1, 1, 0, NULL), APR_E_USAGE);
    assert_int_equal(apr_pages_open(&p, 1, 0, 64, NULL), APR_E_USAGE);
    assert_int_equal(apr_pages_open(&p, (int64_t)1 << 40, 1, 64, NULL), APR_E_USAGE);
    assert_int_equal(apr_pages_open(&p, 1, INT64_MAX / 4, (int64_t)1 << 31, NULL), APR_E_USAGE);
}

static void memory_that_is_short_is_one_sentence_and_leaves_nothing(void **state)
{
    enum { N_TABLES = 4 };
    apr_pages p;
    (void)state;
    for (int nth = 1; nth <= N_TABLES; nth++) {
        const apr_pages closed = {0};
        apr_error err = {0};
        memset(&p, 0xff, sizeof p);
        failing_host_allocation(nth);
        const apr_status status = apr_pages_open(&p, 8, 3, 256, &err);
        const int64_t n_left = failing_host_blocks();
        failing_host_allocation(0);
        assert_int_equal(status, APR_E_MEMORY);
        assert_string_equal(err.text, "not enough memory for the table of pages");
        assert_int_equal(n_left, 0);
        assert_memory_equal(&p, &closed, sizeof p);
        apr_pages_close(&p); /* as may be done with a zeroed one */
    }
    failing_host_allocation(N_TABLES + 1); /* none */
    p = open_pages(8, 3, 256);
    assert_int_equal(failing_host_blocks(), N_TABLES);
    apr_pages_close(&p);
    assert_int_equal(failing_host_blocks(), 0);
    failing_host_allocation(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_has_a_page_for_each_64_positions_that_it_comes_to),
        cmocka_unit_test(a_request_that_does_not_fit_changes_nothing),
        cmocka_unit_test(a_shared_page_is_free_when_the_last_gives_it_back),
        cmocka_unit_test(no_page_is_lost_or_had_twice),
        cmocka_unit_test(what_cannot_be_kept_is_refused),
        cmocka_unit_test(memory_that_is_short_is_one_sentence_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
