/* tools/engine/bench/bench_stages.h: lists of lengths, and the stages that come of them. */
#include "tools/engine/bench/bench_stages.h"
#include "tools/verbs/run/bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_lengths parse(const char *text)
{
    apr_lengths lengths;
    assert_int_equal(apr_lengths_parse(&lengths, "--prompt", text, NULL), APR_OK);
    return lengths;
}

static void lengths_are_whole_numbers_with_commas_between(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "", ",", "5,", "5,,6", "-1", "1.5", "4m", " 4", "1000000001", "99999999999999999999", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    apr_lengths lengths = parse("512,0,2048");
    assert_true(lengths.n == 3 && lengths.items[0] == 512 && lengths.items[1] == 0 && lengths.items[2] == 2048);
    lengths = parse("4k,16");
    assert_true(lengths.n == 2 && lengths.items[0] == 4096 && lengths.items[1] == 16);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        apr_error err = {0};
        assert_int_equal(apr_lengths_parse(&lengths, "--prompt", wrong[i], &err), APR_E_USAGE);
        assert_non_null(strstr(err.text, "--prompt takes"));
    }
}

static void every_depth_has_the_prompts_and_then_the_tokens(void **state)
{
    (void)state;
    const apr_lengths prompts = parse("512,64"), depths = parse("0,100");
    apr_bench_stages stages;
    char name[32];
    assert_int_equal(apr_bench_stages_make(&stages, &prompts, 8, &depths, NULL), APR_OK);
    assert_int_equal(stages.n, 6);
    assert_string_equal(apr_bench_stage_name(&stages.stages[1], name), "pp64");
    assert_string_equal(apr_bench_stage_name(&stages.stages[5], name), "tg8");
    assert_true(stages.stages[2].one_by_one && stages.stages[2].depth == 0 && stages.stages[3].depth == 100);
    assert_int_equal(apr_bench_stages_context(&stages), 612);
    assert_true(apr_bench_stages_drop_deepest(&stages));
    assert_true(stages.n == 3 && apr_bench_stages_context(&stages) == 512);
    assert_false(apr_bench_stages_drop_deepest(&stages));
    assert_int_equal(stages.n, 3);
    apr_bench_stages_close(&stages);
}

static void nothing_to_measure_is_refused(void **state)
{
    (void)state;
    const apr_lengths none = parse("0"), depths = parse("0,5");
    apr_bench_stages stages;
    assert_int_equal(apr_bench_stages_make(&stages, &none, 0, &depths, NULL), APR_E_USAGE);
    assert_int_equal(apr_bench_stages_make(&stages, &none, 1, &depths, NULL), APR_OK);
    assert_int_equal(stages.n, 2);
    apr_bench_stages_close(&stages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_whole_numbers_with_commas_between),
        cmocka_unit_test(every_depth_has_the_prompts_and_then_the_tokens),
        cmocka_unit_test(nothing_to_measure_is_refused),
    };
    return cmocka_run_group_tests_name("bench_stages", tests, NULL, NULL);
}
