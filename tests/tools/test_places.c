/* tools/engine/device/places.h: the words of --offload and --gpus. */
#include "tools/engine/device/places.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void offloads_are_read_and_written_in_the_same_way(void **state)
{
    static const struct {
        const char *text;
        bool experts;
        int64_t n_layers, n_expert_layers;
    } known[] = {{"experts", true, 0, 0},
                 {"experts=7", true, 0, 7},
                 {"layers=1", false, 1, 0},
                 {"layers=48", false, 48, 0},
                 {"layers=all", false, INT64_MAX, 0},
                 {"experts,layers=3", true, 3, 0},
                 {"experts=48,layers=3", true, 3, 48}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        apr_offload o;
        char text[64];
        assert_int_equal(apr_offload_parse(known[i].text, &o, NULL), APR_OK);
        assert_true(o.experts == known[i].experts && o.n_layers == known[i].n_layers && o.n_expert_layers == known[i].n_expert_layers);
        assert_string_equal(apr_offload_text(&o, text, sizeof text), known[i].text);
    }
    apr_offload o = {.experts = true};
    assert_int_equal(apr_offload_parse(NULL, &o, NULL), APR_OK);
    assert_false(apr_offload_is_some(&o));
}

static void other_words_are_refused(void **state)
{
    static const char *const offloads[] = {"",           "layers",     "layers=",     "layers=0",       "layers=-1",
                                           "layers=1.5", "layers=3x",  "expert",      "experts,",       "layers=99999999999999999999",
                                           "layers=+3",  "Experts",    "experts all", "layers=all,all", "experts=",
                                           "experts=0",  "experts=all"};
    static const char *const gpus[] = {"",   "0",  "17",   "-1",    "+2",     "2x",
                                       "0,", ",1", "0,,1", "0,1,0", "0,1025", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    (void)state;
    for (size_t i = 0; i < sizeof offloads / sizeof *offloads; i++) {
        apr_offload o;
        if (apr_offload_parse(offloads[i], &o, NULL) != APR_E_USAGE) fail_msg("--offload '%s' was understood", offloads[i]);
    }
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        int n, ordinals[APR_MAX_DEVICES];
        if (apr_gpus_parse(gpus[i], &n, ordinals, NULL) != APR_E_USAGE) fail_msg("--gpus '%s' was understood", gpus[i]);
    }
}

static void gpus_are_a_number_or_a_list(void **state)
{
    int n, ordinals[APR_MAX_DEVICES];
    (void)state;
    assert_int_equal(apr_gpus_parse("3", &n, ordinals, NULL), APR_OK);
    assert_true(n == 3 && ordinals[0] == 0 && ordinals[1] == 1 && ordinals[2] == 2);
    assert_int_equal(apr_gpus_parse("0,2", &n, ordinals, NULL), APR_OK);
    assert_true(n == 2 && ordinals[0] == 0 && ordinals[1] == 2);
    assert_int_equal(apr_gpus_parse("1,1", &n, ordinals, NULL), APR_OK);
    assert_true(n == 2 && ordinals[0] == 1 && ordinals[1] == 1);
    assert_int_equal(apr_gpus_parse("16", &n, ordinals, NULL), APR_OK);
    assert_int_equal(n, 16);
    assert_int_equal(apr_gpus_parse(NULL, &n, ordinals, NULL), APR_OK);
    assert_int_equal(n, 0);
}

static void gpus_that_encode_are_a_list_or_all(void **state)
{
    static const char *const others[] = {"", "-1", "0,", ",0", "0,,1", "all,0", "ALL", "0 1", "1025", "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"};
    int n, ordinals[APR_MAX_DEVICES];
    (void)state;
    assert_int_equal(apr_gpu_list_parse("2", &n, ordinals, NULL), APR_OK);
    assert_true(n == 1 && ordinals[0] == 2);
    assert_int_equal(apr_gpu_list_parse("3,0,3", &n, ordinals, NULL), APR_OK);
    assert_true(n == 3 && ordinals[0] == 3 && ordinals[1] == 0 && ordinals[2] == 3);
    assert_int_equal(apr_gpu_list_parse("all", &n, ordinals, NULL), APR_OK);
    assert_int_equal(n, 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (apr_gpu_list_parse(others[i], &n, ordinals, NULL) != APR_E_USAGE) fail_msg("--gpu '%s' was understood", others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offloads_are_read_and_written_in_the_same_way),
        cmocka_unit_test(other_words_are_refused),
        cmocka_unit_test(gpus_are_a_number_or_a_list),
        cmocka_unit_test(gpus_that_encode_are_a_list_or_all),
    };
    return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
