/* quant/damage_table.h: what was written is read, and what is not a table is refused with the reason. */
#include "quant/damage_table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void what_was_written_is_read(void **state)
{
    (void)state;
    apr_damage_table t, again;
    char name[32];
    size_t n_bytes;

    assert_int_equal(apr_damage_table_start(&t, "model 1, text 2", NULL), APR_OK);
    for (int i = 0; i < 200; i++) { /* the table grows on the way */
        snprintf(name, sizeof name, "tensor %d \"quoted\"", i);
        apr_damage_table_row(&t, name)->kl[APR_Q4_K] = 0.1 / (i + 1);
    }
    apr_damage_table_row(&t, "tensor 7 \"quoted\"")->kl[APR_Q8_0] = 0.0;
    assert_int_equal(t.n_rows, 200);
    char *const text = apr_damage_table_write(&t, &n_bytes);
    assert_non_null(text);
    assert_memory_equal(text, APR_DAMAGE_MARK, strlen(APR_DAMAGE_MARK));
    assert_int_equal(apr_damage_table_read(&again, text, n_bytes, "test", NULL), APR_OK);
    assert_string_equal(again.terms, t.terms);
    assert_int_equal(again.n_rows, 200);
    for (size_t i = 0; i < 200; i++) {
        assert_string_equal(again.rows[i].name, t.rows[i].name);
        assert_true(again.rows[i].kl[APR_Q4_K] == t.rows[i].kl[APR_Q4_K]);
        assert_int_equal(isnan(again.rows[i].kl[APR_Q8_0]), i != 7);
    }
    assert_null(apr_damage_table_find(&again, "tensor 200"));
    free(text);
    apr_damage_table_close(&again);
    apr_damage_table_close(&t);
}

static void what_is_not_a_table_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "test"},
        {"{}", "not a table of damages"},
        {"{\"damages\":{\"terms\":\"a\"}}", "not a table of damages"},
        {"{\"damages\":{\"terms\":1,\"rows\":[]}}", "not a table of damages"},
        {"{\"damages\":{\"terms\":\"a\",\"rows\":[1]}}", "row 0 of the damages has no name"},
        {"{\"damages\":{\"terms\":\"a\",\"rows\":[{\"q4_k\":1}]}}", "row 0 of the damages has no name"},
        {"{\"damages\":{\"terms\":\"a\",\"rows\":[{\"name\":\"x\",\"q4_z\":1}]}}", "'q4_z', which is not a type"},
        {"{\"damages\":{\"terms\":\"a\",\"rows\":[{\"name\":\"x\",\"q4_k\":-1}]}}", "the figure of q4_k is not a divergence"},
        {"{\"damages\":{\"terms\":\"a\",\"rows\":[{\"name\":\"x\",\"q4_k\":\"1\"}]}}", "the figure of q4_k is not a divergence"},
        {"{\"damages\":{\"terms\":\"a\",\"rows\":[{\"name\":\"x\",\"q4_k\":NaN}]}}", "the figure of q4_k is not a divergence"},
        {"{\"damages\":{\"terms\":\"a\",\"rows\":[{\"name\":\"x\"},{\"name\":\"x\"}]}}", "two rows are called 'x'"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        apr_damage_table t;
        apr_error err = {0};
        assert_int_equal(apr_damage_table_read(&t, wrong[i].text, strlen(wrong[i].text), "test", &err), APR_E_DAMAGED);
        if (strstr(err.text, wrong[i].says) == NULL) fail_msg("'%s' does not say '%s'", err.text, wrong[i].says);
        apr_damage_table_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(what_is_not_a_table_is_refused_with_the_reason),
    };
    return cmocka_run_group_tests_name("damage_table", tests, NULL, NULL);
}
