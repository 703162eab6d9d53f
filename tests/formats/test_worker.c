/* worker.h: work runs in the order in which it was given, one piece at a time, on another thread; closing ends what was given. */
#include "formats/base/threads.h"
#include "formats/base/worker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PIECES = 1000, NUMBERS = 1 << 16 };

typedef struct piece {
    int64_t *sum;
    int64_t number;
    pthread_t thread;
} piece;

/* Depends on the order. */
static void add(void *user)
{
    piece *const p = user;
    *p->sum = *p->sum * 3 % 1000003 + p->number;
    p->thread = pthread_self();
}

static void pieces_run_in_order_on_another_thread(void **state)
{
    static piece pieces[PIECES];
    int64_t sum = 1, expected = 1;
    apr_worker *worker;
    apr_error err = {0};
    (void)state;

    assert_int_equal(apr_worker_open(&worker, 7, &err), APR_OK);
    apr_worker_wait(worker, 0); /* for nothing */
    assert_int_equal(apr_worker_n_ended(worker), 0);
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = (piece){.sum = &sum, .number = i};
        expected = expected * 3 % 1000003 + i;
        apr_worker_start(worker, add, &pieces[i]);
        assert_true(apr_worker_n_ended(worker) + 7 > (uint64_t)i); /* it waits while seven are left */
        if (i % 100 != 0) continue;
        apr_worker_wait(worker, (uint64_t)i + 1);
        assert_int_equal(apr_worker_n_ended(worker), i + 1);
        assert_int_equal(sum, expected);
    }
    apr_worker_close(worker);
    assert_int_equal(sum, expected);
    for (int i = 0; i < PIECES; i++) {
        assert_false(pthread_equal(pieces[i].thread, pthread_self()));
        assert_true(pthread_equal(pieces[i].thread, pieces[0].thread));
    }
    apr_worker_close(NULL);
}

static void fill(void *user)
{
    int32_t *const numbers = user;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < NUMBERS; i++) numbers[i] = 7 * i;
}

/* Work uses all cores while its owner does, too. */
static void work_has_threads_of_its_own(void **state)
{
    int32_t *const there = calloc(NUMBERS, sizeof *there), *const here = calloc(NUMBERS, sizeof *here);
    apr_worker *worker;
    apr_error err = {0};
    (void)state;

    assert_non_null(there);
    assert_non_null(here);
    assert_int_equal(apr_worker_open(&worker, 1, &err), APR_OK);
    apr_worker_start(worker, fill, there);
    fill(here);
    apr_worker_wait(worker, 1);
    assert_memory_equal(here, there, NUMBERS * sizeof *here);
    apr_worker_close(worker);
    free(there), free(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_run_in_order_on_another_thread),
        cmocka_unit_test(work_has_threads_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
