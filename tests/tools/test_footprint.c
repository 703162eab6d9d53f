/* tools/engine/plan/footprint.h: memory of several sessions, planned and counted together. */
#include "tools/engine/plan/footprint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_model model;

static int open_model(void **state)
{
    (void)state;
    return apr_model_open(&model, "tests/data/tiny-qwen2", NULL) != APR_OK;
}

static int close_model(void **state)
{
    (void)state;
    apr_model_close(&model);
    return 0;
}

static apr_session *open_session(int64_t n_ctx)
{
    apr_session *session;
    apr_session_options options = apr_session_defaults;
    options.n_ctx = n_ctx;
    assert_int_equal(apr_session_open(&session, &model, &options, NULL), APR_OK);
    return session;
}

static void two_sessions_take_what_both_take(void **state)
{
    (void)state;
    apr_session *const a = open_session(1024), *const b = open_session(256);
    const apr_session *const both[] = {a, b};
    const apr_footprint one = apr_footprint_of(both, 1), other = apr_footprint_of(both + 1, 1), f = apr_footprint_of(both, 2);
    assert_int_equal(f.on, APR_ON_HOST);
    assert_int_equal(f.planned, one.planned + other.planned);
    assert_int_equal(f.weights, one.weights + other.weights);
    assert_true(f.mapped && apr_footprint_as_planned(&f));
    if (one.measured != UINT64_MAX) assert_int_equal(f.measured, one.measured + other.measured);
    apr_session_close(a);
    apr_session_close(b);
}

static void composed_weights_are_planned_and_measured(void **state)
{
    (void)state;
    apr_session *const a = open_session(256);
    const apr_session *const one[] = {a};
    const apr_footprint before = apr_footprint_of(one, 1);
    apr_footprint f = before;
    apr_footprint_add_weights(&f, before.weights + 4096);
    assert_false(f.mapped);
    assert_int_equal(f.planned, before.planned + before.weights);
    if (before.measured != UINT64_MAX) assert_int_equal(f.measured, before.measured + before.weights + 4096);
    f = before;
    apr_footprint_add_weights(&f, before.weights + (1 << 22)); /* more than was planned, and more than rounding */
    assert_false(apr_footprint_as_planned(&f));
    f = before;
    apr_footprint_add_weights(&f, UINT64_MAX); /* not counted */
    assert_true(f.measured == UINT64_MAX && !apr_footprint_as_planned(&f));
    apr_session_close(a);
}

static void context_and_headroom_are_counted_once_a_gpu(void **state)
{
    (void)state;
    apr_program program;
    apr_plan a, b;
    apr_plan_options options = apr_plan_defaults;
    assert_int_equal(apr_program_emit(&program, &model.hparams, NULL), APR_OK);
    assert_int_equal(apr_plan_make(&a, &program, &options, NULL), APR_OK);
    assert_int_equal(apr_planned_together(&a, &a), 2 * a.host_bytes);
    apr_plan_close(&a);

    options.gpu = apr_gpu_find("h200");
    assert_int_equal(apr_plan_make(&a, &program, &options, NULL), APR_OK);
    options.n_ctx = 64;
    assert_int_equal(apr_plan_make(&b, &program, &options, NULL), APR_OK);
    const uint64_t context = apr_plan_line_of(&a, APR_LINE_CONTEXT)->bytes, headroom = apr_plan_line_of(&a, APR_LINE_HEADROOM)->bytes;
    assert_true(context > 0 && headroom > 0);
    assert_int_equal(apr_planned_together(&a, &b), a.device_bytes + b.device_bytes - context - headroom);
    apr_plan one = a; /* of one memory, what is on the host counts as well */
    one.is_shared = true;
    one.taken_bytes = a.device_bytes + 5;
    assert_int_equal(apr_planned_together(&one, &one), apr_planned_together(&a, &a) + 10);
    apr_plan_close(&a);
    apr_plan_close(&b);
    apr_program_close(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sessions_take_what_both_take),
        cmocka_unit_test(composed_weights_are_planned_and_measured),
        cmocka_unit_test(context_and_headroom_are_counted_once_a_gpu),
    };
    return cmocka_run_group_tests_name("footprint", tests, open_model, close_model);
}
