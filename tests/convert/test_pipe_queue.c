/* convert/pipe_queue.h: every portion is made once, in its slot, and taken in once, in order, by whatever threads. */
#include "convert/pipe_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MOST_PORTIONS = 1000, MOST_SLOTS = 128 };

typedef struct record {
    size_t n_slots;
    int n_threads;
    int64_t fail_at;          /* the portion that is not taken in; -1: none */
    int64_t fail_making;      /* the one that is not made; -1: none */
    int64_t slot[MOST_SLOTS]; /* the portion that is there */
    int64_t taken;            /* portions 0 to taken - 1 */
    int64_t in_threads[64];   /* portions that each thread made */
    atomic_int n_takers, n_made;
    atomic_bool is_wrong;
} record;

/* As long as portions may take: some of them much longer than others. */
static void dawdle(int64_t portion)
{
    if (portion % 17 == 3) nanosleep(&(struct timespec){.tv_nsec = 300 * 1000}, NULL);
}

static apr_status make(void *context, int64_t portion, size_t slot, int thread, apr_error *err)
{
    record *const r = context;
    dawdle(portion);
    if (slot != (size_t)portion % r->n_slots || thread < 0 || thread >= r->n_threads) atomic_store(&r->is_wrong, true);
    else r->in_threads[thread]++;
    r->slot[slot] = portion;
    atomic_fetch_add(&r->n_made, 1);
    return portion == r->fail_making ? apr_fail(err, APR_E_IO, "portion %lld: no room", (long long)portion) : APR_OK;
}

static apr_status take_some(void *context, int64_t first, int64_t n, apr_error *err)
{
    record *const r = context;
    if (atomic_fetch_add(&r->n_takers, 1) != 0) atomic_store(&r->is_wrong, true); /* two at a time */
    if (first != r->taken || n < 1) atomic_store(&r->is_wrong, true);
    for (int64_t i = first; i < first + n; i++)
        if (r->slot[(size_t)i % r->n_slots] != i) atomic_store(&r->is_wrong, true);
    if ((size_t)first % r->n_slots + (size_t)n > r->n_slots) atomic_store(&r->is_wrong, true); /* not one after another */
    dawdle(first);
    r->taken = first + n;
    atomic_fetch_sub(&r->n_takers, 1);
    if (r->fail_at >= first && r->fail_at < first + n) return apr_fail(err, APR_E_IO, "portion %lld: no room", (long long)r->fail_at);
    return APR_OK;
}

static record *run(int64_t n_portions, size_t n_slots, int n_threads, int64_t fail_at, int64_t fail_making, apr_status *status,
                   apr_error *err)
{
    record *const r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->n_slots = n_slots;
    r->n_threads = n_threads;
    r->fail_at = fail_at;
    r->fail_making = fail_making;
    memset(r->slot, 0xff, sizeof r->slot);
    *status = apr_run_portions(
        &(apr_portion_work){
            .n_portions = n_portions, .n_slots = n_slots, .n_threads = n_threads, .context = r, .make = make, .take = take_some},
        err);
    return r;
}

static void every_portion_is_made_and_taken_once_in_order(void **state)
{
    static const int64_t counts[] = {0, 1, 2, 3, 31, 32, 33, 64, MOST_PORTIONS};
    static const size_t slots[] = {1, 2, 7, 36, MOST_SLOTS};
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t s = 0; s < sizeof slots / sizeof *slots; s++)
            for (int n_threads = 1; n_threads <= 16; n_threads *= 4) {
                apr_error err = {0};
                apr_status status;
                record *const r = run(counts[c], slots[s], n_threads, -1, -1, &status, &err);
                int64_t n = 0;
                for (int t = 0; t < n_threads; t++) n += r->in_threads[t];
                assert_int_equal(status, APR_OK);
                assert_false(atomic_load(&r->is_wrong));
                assert_int_equal(r->taken, counts[c]);
                assert_int_equal(atomic_load(&r->n_made), counts[c]);
                assert_int_equal(n, counts[c]);
                free(r);
            }
}

static void the_first_portion_that_is_not_taken_ends_it(void **state)
{
    (void)state;
    for (int64_t fail_at = 0; fail_at < 200; fail_at += 67) {
        apr_error err = {0};
        apr_status status;
        record *const r = run(MOST_PORTIONS, 36, 4, fail_at, -1, &status, &err);
        assert_int_equal(status, APR_E_IO);
        assert_non_null(strstr(err.text, "no room"));
        assert_false(atomic_load(&r->is_wrong));
        assert_true(r->taken > fail_at && r->taken <= fail_at + 16);             /* nothing after it */
        assert_true(atomic_load(&r->n_made) <= (int)r->taken + (int)r->n_slots); /* nothing is begun that has no slot */
        free(r);
    }
}

static void the_first_portion_that_fails_ends_it_for_all_threads(void **state)
{
    (void)state;
    for (int64_t fail_at = 0; fail_at < 200; fail_at += 67)
        for (int n_threads = 1; n_threads <= 16; n_threads *= 4) {
            apr_error err = {0};
            apr_status status;
            record *const r = run(MOST_PORTIONS, 36, n_threads, -1, fail_at, &status, &err);
            char words[40];
            snprintf(words, sizeof words, "portion %lld: no room", (long long)fail_at);
            assert_int_equal(status, APR_E_IO);
            assert_string_equal(err.text, words);
            assert_true(r->taken <= fail_at); /* neither it nor what follows */
            assert_true(atomic_load(&r->n_made) <= (int)fail_at + 36 + n_threads);
            free(r);
        }
}

static void more_threads_get_more_slots_but_not_without_end(void **state)
{
    (void)state;
    assert_true(apr_portion_slots(1) >= 16 + 1);
    assert_true(apr_portion_slots(8) > apr_portion_slots(2));
    assert_true(apr_portion_slots(1000000) <= MOST_SLOTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_portion_is_made_and_taken_once_in_order),
        cmocka_unit_test(the_first_portion_that_is_not_taken_ends_it),
        cmocka_unit_test(the_first_portion_that_fails_ends_it_for_all_threads),
        cmocka_unit_test(more_threads_get_more_slots_but_not_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
