/* test_report.c - tools/report/report.h: a fact stated once is a row of a table, a line, or a member of the answer's JSON. */
#include "tools/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static apr_status report_cake(apr_answer *answer, apr_error *err)
{
    static const apr_column fruits[] = {{"fruit", .key = "name"}, {"pieces", true, .key = "n"}};
    static const apr_column nuts[] = {{.key = "nut"}, {.key = "n"}};
    static const apr_column plate[] = {{NULL}, {NULL}, {NULL, true, .decimals = 1}};
    apr_report r;

    apr_report_start(&r, answer, err);
    apr_report_facts(&r, "Cake", "");
    apr_report_string(&r, "name", "name", "black forest");
    apr_report_string(&r, "tin", "tin", NULL);
    apr_report_count(&r, "n_crumbs", "crumbs", 1234567);
    apr_report_fact(&r, "heat", apr_as_real(180.5), NULL, "not in the text");
    apr_report_fact(&r, NULL, apr_as_text(NULL), "baked", "for %d minutes", 40);
    apr_report_member(&r, "glaze", apr_as_text_or_null(NULL));
    apr_report_close(&r);

    apr_report_table(&r, "Fillings", "fruits", fruits, 2);
    apr_report_row(&r);
    apr_report_cell(&r, apr_as_text("cherry"), "%s", "cherry");
    apr_report_cell(&r, apr_as_uint(12), "%d", 12);
    apr_report_member(&r, "is_sour", apr_as_bool(true));
    apr_report_continue(&r, "nuts", nuts);
    apr_report_row(&r);
    apr_report_cell(&r, apr_as_text("almond"), "%s", "almond");
    apr_report_cell(&r, apr_as_int(-3), "%d", -3);
    apr_report_close(&r);

    apr_report_table(&r, NULL, "guests", NULL, 0);
    apr_report_close(&r);
    apr_report_facts(&r, "Notes", NULL);
    apr_report_string(&r, "note", "note", "only in the text");
    apr_report_close(&r);

    apr_report_print(&r, "%d guests\n", 0);
    apr_report_reals(&r, "slices", (const double[]){0.5, 0.25}, 2);
    apr_report_facts_in(&r, "", "plate", plate, 3);
    apr_report_fact(&r, "size", apr_as_real(26.5), "size", "%s", "large");
    apr_report_real(&r, 26.5);
    apr_report_fact(&r, NULL, apr_as_absent(), "height", "%s", "low"); /* each fact has its own cells */
    apr_report_real(&r, 4.25);
    apr_report_fact(&r, NULL, apr_as_absent(), "only", "in the text");
    apr_report_close(&r);
    apr_report_member(&r, "left", apr_as_bytes("half", 3));

    apr_report_lines(&r, 6);
    apr_report_fact(&r, "ready", apr_as_bool(true), "ready", "yes");
    apr_report_close(&r);
    return apr_report_end(&r);
}

/* What a report prints on stdout. */
static void print_to(FILE *file, apr_answer *answer)
{
    FILE *const was = stdout;
    stdout = file;
    assert_int_equal(report_cake(answer, NULL), APR_OK);
    fflush(stdout);
    stdout = was;
}

static void text_has_tables_and_lines(void **state)
{
    apr_answer answer = {.json = false};
    char text[512] = "";
    FILE *const file = tmpfile();

    (void)state;
    assert_non_null(file);
    print_to(file, &answer);
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, "Cake\n"
                              "  name    black forest\n"
                              "  crumbs  1,234,567\n"
                              "  baked   for 40 minutes\n"
                              "\nFillings\n"
                              "  fruit   pieces\n"
                              "  cherry      12\n"
                              "  almond      -3\n"
                              "\nNotes\n"
                              "  note  only in the text\n"
                              "0 guests\n"
                              "  size    large        26.5\n"
                              "  height  low           4.2\n"
                              "  only    in the text\n"
                              "  ready   yes\n");
}

static void json_has_every_member(void **state)
{
    apr_answer answer;
    apr_error err = {0};

    (void)state;
    apr_answer_start(&answer, true);
    assert_int_equal(report_cake(&answer, &err), APR_OK);
    apr_json_close(&answer.body, '}');
    char *const text = apr_json_text_take(&answer.body, NULL);
    assert_string_equal(text, "{\"name\":\"black forest\",\"n_crumbs\":1234567,\"heat\":180.5,\"glaze\":null,"
                              "\"fruits\":[{\"name\":\"cherry\",\"n\":12,\"is_sour\":true}],\"nuts\":[{\"nut\":\"almond\",\"n\":-3}],"
                              "\"guests\":[],\"slices\":[0.5,0.25],\"plate\":{\"size\":26.5},\"left\":\"hal\",\"ready\":true}");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_has_tables_and_lines), cmocka_unit_test(json_has_every_member)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
