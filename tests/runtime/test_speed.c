/* runtime/session/speed.h: rates from seconds, and runs of the lengths that were asked for. */
#include "runtime/session/speed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_rate_is_the_median_run_s_with_the_slowest_and_fastest(void **state)
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

static void every_run_is_measured_and_reported(void **state)
{
    (void)state;
    apr_model model;
    counted c = {0};
    bool finite;
    apr_session *const session = open_tiny(&model, 20);
    const apr_speed_options options = {.n_runs = 3, .seed = 5, .on_run = count, .user = &c};
    apr_speed_stage stages[] = {{.n_tokens = 12}, {.depth = 12, .n_tokens = 8, .one_by_one = true}, {.depth = 3, .n_tokens = 1}};
    assert_int_equal(apr_speed_measure(session, stages, 3, &options, &finite, NULL), APR_OK);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 3; i++) assert_true(stages[k].seconds[i] > 0.0 && stages[k].product_seconds[i] > 0.0);
    assert_true(finite);
    assert_true(c.n_calls == 24 && c.last == 24 && c.of == 24); /* also the unmeasured ones */
    assert_int_equal(apr_session_position(session), 0);
    apr_session_close(session);
    apr_model_close(&model);
}

/* Keys and values of the depth are the ids' own: what follows them is what follows them in any session. */
static void a_session_computes_the_same_after_it_was_measured(void **state)
{
    (void)state;
    apr_model model;
    bool finite;
    float before[2048], after[2048];
    const int32_t ids[] = {5, 9, 300, 7};
    apr_session *const session = open_tiny(&model, 20);
    const apr_speed_options options = {.n_runs = 1};
    apr_speed_stage stages[] = {{.depth = 4, .n_tokens = 6, .one_by_one = true}, {.n_tokens = 16}};
    const apr_eval_output to_before = {.logits = before}, to_after = {.logits = after};
    assert_int_equal(apr_session_eval(session, ids, 4, &to_before, NULL), APR_OK);
    assert_int_equal(apr_speed_measure(session, stages, 2, &options, &finite, NULL), APR_OK);
    assert_int_equal(apr_session_eval(session, ids, 4, &to_after, NULL), APR_OK);
    assert_memory_equal(before, after, sizeof before);
    apr_session_close(session);
    apr_model_close(&model);
}

static void the_overhead_outside_products_is_never_negative(void **state)
{
    (void)state;
    const apr_speed_stage slow = {.seconds = {5.0, 1.0, 3.0}, .product_seconds = {2.0, 2.5, 1.0}};
    const apr_speed_stage odd = {.seconds = {1.0}, .product_seconds = {2.0}};
    assert_true(apr_speed_overhead(&slow, 3) == 1.0);
    assert_true(apr_speed_overhead(&odd, 1) == 0.0);
}

static void what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    apr_model model;
    bool finite;
    apr_session *const session = open_tiny(&model, 16);
    const apr_speed_options once = {.n_runs = 1}, never = {.n_runs = 0}, too_often = {.n_runs = APR_SPEED_MOST_RUNS + 1};
    apr_speed_stage four = {.n_tokens = 4};
    apr_speed_stage wrong[] = {
        {.n_tokens = 0}, {.depth = 10, .n_tokens = 7}, {.depth = INT64_MAX, .n_tokens = INT64_MAX}, {.depth = -1, .n_tokens = 4}};
    assert_int_equal(apr_speed_measure(session, &four, 0, &once, &finite, NULL), APR_E_USAGE);
    assert_int_equal(apr_speed_measure(session, &four, 1, &never, &finite, NULL), APR_E_USAGE);
    assert_int_equal(apr_speed_measure(session, &four, 1, &too_often, &finite, NULL), APR_E_USAGE);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(apr_speed_measure(session, &wrong[i], 1, &once, &finite, NULL), APR_E_USAGE);
    apr_session_close(session);
    apr_model_close(&model);
}

static void nan_logits_are_seen(void **state)
{
    (void)state;
    apr_model model;
    apr_session *session;
    bool finite;
    const apr_speed_options options = {.n_runs = 1};
    apr_speed_stage stage = {.n_tokens = 4};
    assert_int_equal(apr_model_open(&model, "tests/data/tiny-qwen2", NULL), APR_OK);
    apr_tensor *const norm = (apr_tensor *)(uintptr_t)apr_model_find(&model, "model.norm.weight");
    uint8_t *const nans = malloc(norm->n_bytes);
    memset(nans, 0xff, norm->n_bytes);
    norm->data = nans;
    assert_int_equal(apr_session_open(&session, &model, &apr_session_defaults, NULL), APR_OK);
    assert_int_equal(apr_speed_measure(session, &stage, 1, &options, &finite, NULL), APR_OK);
    assert_false(finite);
    apr_session_close(session);
    apr_model_close(&model);
    free(nans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_the_median_run_s_with_the_slowest_and_fastest),
        cmocka_unit_test(every_run_is_measured_and_reported),
        cmocka_unit_test(a_session_computes_the_same_after_it_was_measured),
        cmocka_unit_test(the_overhead_outside_products_is_never_negative),
        cmocka_unit_test(what_cannot_be_measured_is_refused),
        cmocka_unit_test(nan_logits_are_seen),
    };
    return cmocka_run_group_tests_name("speed", tests, NULL, NULL);
}
