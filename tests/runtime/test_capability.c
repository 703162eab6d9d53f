/* runtime/plan/capability.h: devices are classified by family, so that those of tomorrow run too. */
#include "runtime/plan/capability.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char all[] = "75 80 86 89 90 100 103 120 121";

static void known_families_have_their_units_and_native_code(void **state)
{
    (void)state;
    static const struct {
        int major, minor;
        const char *family;
        bool fp8, fp4;
    } cases[] = {
        {7, 5, "Turing", false, false},   {8, 0, "Ampere", false, false},   {8, 6, "Ampere", false, false},
        {8, 7, "Ampere", false, false},   {8, 9, "Ada", true, false},       {9, 0, "Hopper", true, false},
        {10, 0, "Blackwell", true, true}, {10, 3, "Blackwell", true, true}, {12, 0, "Blackwell", true, true},
        {12, 1, "Blackwell", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        apr_capability c;
        assert_int_equal(apr_capability_of(&c, cases[i].major, cases[i].minor, all, &err), APR_OK);
        assert_string_equal(c.family, cases[i].family);
        assert_int_equal(c.fp8_units, cases[i].fp8);
        assert_int_equal(c.fp4_units, cases[i].fp4);
        assert_int_equal(c.code, APR_CODE_NATIVE);
    }
}

static void what_is_newer_than_the_table_runs_on_ptx_with_nothing_special(void **state)
{
    (void)state;
    static const int cases[][2] = {{13, 0}, {15, 2}, {42, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        apr_capability c;
        assert_int_equal(apr_capability_of(&c, cases[i][0], cases[i][1], all, &err), APR_OK);
        assert_int_equal(c.code, APR_CODE_PTX);
        assert_false(c.fp8_units);
        assert_false(c.fp4_units);
        assert_non_null(c.family);
    }
}

static void a_newer_member_of_a_family_runs_its_older_code(void **state)
{
    (void)state;
    apr_error err = {0};
    apr_capability c;
    assert_int_equal(apr_capability_of(&c, 12, 4, all, &err), APR_OK);
    assert_int_equal(c.code, APR_CODE_NATIVE);
    assert_true(c.fp8_units);
    assert_null(c.fp8_fault);
}

static void what_is_too_old_or_has_no_code_is_refused_in_a_sentence(void **state)
{
    (void)state;
    static const struct {
        int major, minor;
        const char *architectures, *says;
    } cases[] = {{6, 1, "75 80", "7.5"}, {7, 0, "75", "7.5"}, {8, 9, "90", "ARCHS=89"}, {9, 0, "100 120", "ARCHS=90"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        apr_capability c;
        assert_int_equal(apr_capability_of(&c, cases[i].major, cases[i].minor, cases[i].architectures, &err), APR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, cases[i].says));
    }
}

static void a_list_of_architectures_may_be_anything(void **state)
{
    (void)state;
    static const char *const lists[] = {"", "x", "90x", " ", "90,100", "99999999999999999999"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        apr_error err = {0};
        apr_capability c;
        const apr_status status = apr_capability_of(&c, 9, 0, lists[i], &err);
        assert_true(status == APR_OK || status == APR_E_UNSUPPORTED);
    }
}

static void fp8_is_used_only_after_a_probe_and_not_where_it_is_known_to_fail(void **state)
{
    (void)state;
    static const struct {
        int major, minor;
        apr_fp8_choice choice;
        bool wants, uses_right; /* wants a probe; used when it was right */
    } cases[] = {
        {8, 6, APR_FP8_AUTO, false, false}, {8, 6, APR_FP8_ON, false, false},    {9, 0, APR_FP8_AUTO, true, true},
        {9, 0, APR_FP8_OFF, false, false},  {12, 1, APR_FP8_AUTO, false, false}, {12, 1, APR_FP8_ON, true, true},
        {12, 0, APR_FP8_AUTO, true, true},  {13, 0, APR_FP8_ON, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        apr_capability c;
        assert_int_equal(apr_capability_of(&c, cases[i].major, cases[i].minor, all, &err), APR_OK);
        assert_int_equal(apr_capability_wants_probe(&c, cases[i].choice), cases[i].wants);
        assert_int_equal(apr_capability_uses_fp8(&c, cases[i].choice, APR_PROBE_RIGHT), cases[i].uses_right);
        assert_false(apr_capability_uses_fp8(&c, cases[i].choice, APR_PROBE_WRONG));
        assert_false(apr_capability_uses_fp8(&c, cases[i].choice, APR_PROBE_UNKNOWN));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_families_have_their_units_and_native_code),
        cmocka_unit_test(what_is_newer_than_the_table_runs_on_ptx_with_nothing_special),
        cmocka_unit_test(a_newer_member_of_a_family_runs_its_older_code),
        cmocka_unit_test(what_is_too_old_or_has_no_code_is_refused_in_a_sentence),
        cmocka_unit_test(a_list_of_architectures_may_be_anything),
        cmocka_unit_test(fp8_is_used_only_after_a_probe_and_not_where_it_is_known_to_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
