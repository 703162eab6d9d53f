/* runtime/session/speed.h: rates from seconds, and runs of the lengths that were asked for. */
#include "runtime/session/speed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_rate_is_the_median_run_s_with_the_slowest_and_fastest_beside(void **state)
{
    (void)state;
    const double three[] = {2.0, 0.5, 1.0}, two[] = {1.0, 4.0}, none[] = {0.0};
    const apr_spread odd = apr_speed_rates(100, three, 3), even = apr_speed_rates(100, two, 2);
    assert_true(odd.median == 100.0 && odd.low == 50.0 && odd.high == 200.0);
    assert_true(even.median == 62.5 && even.low == 25.0 && even.high == 100.0);
    assert_true(isfinite(apr_speed_rates(100, none, 1).median)); /* below the clock's tick */
    assert_true(apr_speed_rates(0, three, 3).median == 0.0);
}

typedef struct counted {
    int n_calls, last, of;
} counted;

static void count(void *user, int n_done, int n_runs)
{
    counted *const c = user;
    c->n_calls++;
    c->last = n_done;
    c->of = n_runs;
}

static apr_session *open_tiny(apr_model *model, int64_t n_ctx)
{
    apr_session *session;
    apr_session_options options = apr_session_defaults;
    options.n_ctx = n_ctx;
    assert_int_equal(apr_model_open(model, "tests/data/tiny-qwen2", NULL), APR_OK);
    assert_int_equal(apr_session_open(&session, model, &options, NULL), APR_OK);
    return session;
}

static void every_run_is_measured_and_ends_where_it_should(void **state)
{
    (void)state;
    apr_model model;
    apr_speed speed;
    counted c = {0};
    apr_session *const session = open_tiny(&model, 20);
    const apr_speed_options options = {.n_prompt = 12, .n_tokens = 8, .n_runs = 3, .seed = 5, .on_run = count, .user = &c};
    assert_int_equal(apr_speed_measure(session, &options, &speed, NULL), APR_OK);
    assert_int_equal(speed.n_runs, 3);
    for (int i = 0; i < 3; i++) assert_true(speed.prompt_s[i] > 0.0 && speed.decode_s[i] > 0.0);
    assert_true(speed.finite);
    assert_int_equal(apr_session_position(session), 20);
    assert_true(c.n_calls == 4 && c.last == 3 && c.of == 3); /* the unmeasured one, too */

    const apr_speed_options only_tokens = {.n_tokens = 6, .n_runs = 1}, only_prompt = {.n_prompt = 6, .n_runs = 1};
    assert_int_equal(apr_speed_measure(session, &only_tokens, &speed, NULL), APR_OK);
    assert_int_equal(apr_session_position(session), 6);
    assert_int_equal(apr_speed_measure(session, &only_prompt, &speed, NULL), APR_OK);
    assert_int_equal(apr_session_position(session), 6);
    apr_session_close(session);
    apr_model_close(&model);
}

static void what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    apr_model model;
    apr_speed speed;
    apr_session *const session = open_tiny(&model, 16);
    const apr_speed_options wrong[] = {{.n_runs = 1},
                                       {.n_prompt = 4, .n_runs = 0},
                                       {.n_prompt = 4, .n_runs = APR_SPEED_MOST_RUNS + 1},
                                       {.n_prompt = 10, .n_tokens = 7, .n_runs = 1},
                                       {.n_prompt = INT64_MAX, .n_tokens = INT64_MAX, .n_runs = 1},
                                       {.n_prompt = -1, .n_tokens = 4, .n_runs = 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(apr_speed_measure(session, &wrong[i], &speed, NULL), APR_E_USAGE);
    apr_session_close(session);
    apr_model_close(&model);
}

static void logits_that_are_no_numbers_are_seen(void **state)
{
    (void)state;
    apr_model model;
    apr_session *session;
    apr_speed speed;
    const apr_speed_options options = {.n_prompt = 4, .n_tokens = 2, .n_runs = 1};
    assert_int_equal(apr_model_open(&model, "tests/data/tiny-qwen2", NULL), APR_OK);
    apr_tensor *const norm = (apr_tensor *)(uintptr_t)apr_model_find(&model, "model.norm.weight");
    uint8_t *const nans = malloc(norm->n_bytes);
    memset(nans, 0xff, norm->n_bytes);
    norm->data = nans;
    assert_int_equal(apr_session_open(&session, &model, &apr_session_defaults, NULL), APR_OK);
    assert_int_equal(apr_speed_measure(session, &options, &speed, NULL), APR_OK);
    assert_false(speed.finite);
    apr_session_close(session);
    apr_model_close(&model);
    free(nans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_the_median_run_s_with_the_slowest_and_fastest_beside),
        cmocka_unit_test(every_run_is_measured_and_ends_where_it_should),
        cmocka_unit_test(what_cannot_be_measured_is_refused),
        cmocka_unit_test(logits_that_are_no_numbers_are_seen),
    };
    return cmocka_run_group_tests_name("speed", tests, NULL, NULL);
}
