/* formats/base/pattern.h: found, not found and given up are three results; hostile expressions cost little. */
#include "formats/base/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char slow[] = "(a+)+x|a!", slow_for[] = "aaaaaaaaaaaaaaaaaaaaaaaa!";

static void names_are_searched(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        unsigned flags;
        bool found;
    } cases[] = {
        {"layers\\.1\\.", "model.layers.1.mlp", 0, true},
        {"layers\\.1\\.", "model.layers.11.mlp", 0, false},
        {"layers", "model.layers.1", APR_PATTERN_AT_START, false},
        {"mod", "model.layers.1", APR_PATTERN_AT_START, true},
        {"mlp$", "model.mlp\n", 0, false},
        {"[[:digit:]]{2}", "layers.10", APR_PATTERN_OF_USER, true},
        {"^.$", "\xc3\xa4", APR_PATTERN_UTF, true},
        {"^.$", "\xc3\xa4", 0, false},
        {".", "\xff", APR_PATTERN_UTF, false},
        {".", "\xff", 0, true},
        {"", "anything", 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        const apr_pattern *pattern;
        bool found;
        assert_int_equal(apr_pattern_compile(&pattern, "test", cases[i].text, cases[i].flags, &arena, NULL), APR_OK);
        assert_int_equal(apr_pattern_find(pattern, cases[i].name, &found, NULL), APR_OK);
        if (found != cases[i].found) fail_msg("'%s' and '%s'", cases[i].text, cases[i].name);
        apr_arena_close(&arena);
    }
}

static void giving_up_is_not_the_same_as_not_found(void **state)
{
    (void)state;
    static const struct {
        unsigned flags;
        apr_status status;
    } cases[] = {{0, APR_E_UNSUPPORTED}, {APR_PATTERN_UTF, APR_E_UNSUPPORTED}, {APR_PATTERN_OF_USER, APR_E_USAGE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_error err = {0};
        const apr_pattern *pattern;
        bool found;
        assert_int_equal(apr_pattern_compile(&pattern, "--tensor", slow, cases[i].flags, &arena, NULL), APR_OK);
        assert_int_equal(apr_pattern_find(pattern, slow_for, &found, &err), cases[i].status);
        assert_non_null(strstr(err.text, "--tensor: "));
        assert_non_null(strstr(err.text, "takes too long"));
        assert_non_null(strstr(err.text, slow_for));
        assert_int_equal(apr_pattern_find(pattern, "b!", &found, NULL), APR_OK);
        assert_false(found);
        apr_arena_close(&arena);
    }
}

static void hostile_expressions_are_refused(void **state)
{
    enum { DEEP = 60000 };
    char *const deep = malloc(2 * DEEP + 1);
    (void)state;
    assert_non_null(deep);
    memset(deep, '(', DEEP);
    memset(deep + DEEP, ')', DEEP);
    deep[2 * DEEP] = '\0';
    const char *const hostile[] = {deep, "((((a{1,255}){1,255}){1,255}){1,255})", "(", "a{99999999}"};
    for (size_t i = 0; i < 2 * sizeof hostile / sizeof *hostile; i++) {
        apr_arena arena = {0};
        apr_error err = {0};
        const apr_pattern *pattern;
        const apr_status wanted = i % 2 == 0 ? APR_E_DAMAGED : APR_E_USAGE;
        assert_int_equal(apr_pattern_compile(&pattern, "--filter", hostile[i / 2], i % 2 == 0 ? 0 : APR_PATTERN_OF_USER, &arena, &err),
                         wanted);
        assert_null(pattern);
        assert_non_null(strstr(err.text, "is not a regular expression"));
        assert_true(arena.held_bytes < (16 << 20));
        apr_arena_close(&arena);
    }
    free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_searched),
        cmocka_unit_test(giving_up_is_not_the_same_as_not_found),
        cmocka_unit_test(hostile_expressions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
