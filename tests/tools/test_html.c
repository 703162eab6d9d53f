/* tools/report/html.h, apr_report_page of report.h: a page is there whole or not at all, and a failure of its last step is the run's. */
#define _POSIX_C_SOURCE 200809L
#include "tools/report/html.h"
#include "tools/report/report.h"

#include "tests/support/failing_host.h"
#include "tests/support/work_folder.h"

static const char mark[] = "content=\"test\"";

static void write_page(apr_report *r, const void *shown)
{
    apr_html_open(r->out, mark, "model", "tested");
    apr_html_text(r->out, shown);
}

static apr_out *begin_page(void)
{
    apr_out *page;
    assert_int_equal(apr_out_open_marked(&page, in_work("page.html"), mark, NULL), APR_OK);
    return page;
}

static char *page_text(void)
{
    static char text[1 << 14];
    FILE *const in = fopen(in_work("page.html"), "r");
    if (in == NULL) return NULL;
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    assert_int_equal(fclose(in), 0);
    return text;
}

static void assert_is_page(const char *with)
{
    const char *const text = page_text();
    assert_non_null(text);
    if (strstr(text, with) == NULL) fail_msg("no '%s' in %s", with, text);
    assert_int_equal(count_temporaries(work), 0);
}

/* What a run answers that wrote such a page and ended with `status`. */
static apr_status make_page(const char *shown, apr_status status, apr_error *err)
{
    apr_out *const page = begin_page();
    assert_int_equal(apr_report_page(write_page, shown, page, NULL), APR_OK);
    return apr_html_close(page, status, err);
}

static void a_page_shows_also_why_the_answer_is_no(void **state)
{
    apr_error err = {0};
    (void)state;
    assert_int_equal(make_page("1 < 2", APR_OK, &err), APR_OK);
    assert_is_page("model - tested</title>");
    assert_is_page("1 &lt; 2");
    assert_int_equal(make_page("no", APR_E_NO, &err), APR_E_NO);
    assert_is_page("<main>\nno");
    assert_string_equal(err.text, "");
}

static void a_run_that_failed_leaves_the_old_page(void **state)
{
    apr_error err = {0};
    (void)state;
    assert_int_equal(make_page("old", APR_OK, &err), APR_OK);
    apr_fail(&err, APR_E_USAGE, "a sentence");
    for (int status = APR_E_NO + 1; status <= APR_E_DEVICE; status++) assert_int_equal(make_page("new", (apr_status)status, &err), status);
    assert_string_equal(err.text, "a sentence");
    assert_is_page("<main>\nold");
    assert_int_equal(apr_html_close(NULL, APR_OK, &err), APR_OK); /* without a page the run ended as it ended */
    assert_int_equal(apr_html_close(NULL, APR_E_NO, &err), APR_E_NO);
}

/* Its name was taken by something else while the page was written. The run's answer, yes or no, gives way to that. */
static void a_page_that_cannot_be_closed_is_the_runs_failure(void **state)
{
    static const apr_status answers[] = {APR_OK, APR_E_NO};
    (void)state;
    for (int i = 0; i < 2; i++) {
        apr_error err = {0};
        if (answers[i] == APR_E_NO) apr_fail(&err, APR_E_NO, "the models differ");
        remove(in_work("page.html"));
        apr_out *const page = begin_page();
        assert_int_equal(apr_report_page(write_page, "new", page, NULL), APR_OK);
        write_file(in_work("page.html"), "precious", 8);
        assert_int_equal(apr_html_close(page, answers[i], &err), APR_E_IO);
        assert_int_equal(err.status, APR_E_IO);
        assert_non_null(strstr(err.text, "page.html: exists already and is something else"));
        assert_string_equal(page_text(), "precious");
        assert_int_equal(count_temporaries(work), 0);
        remove(in_work("page.html"));
    }
}

/* fclose of the text in memory is where its last bytes are allocated. */
static void a_text_that_cannot_be_closed_is_missing_memory(void **state)
{
    apr_error err = {0};
    (void)state;
    for (int nth = 0; nth <= 1; nth++) {
        apr_out *const page = begin_page();
        failing_host_close(nth);
        failing_host_allocation(0);
        const apr_status status = apr_report_page(write_page, "text", page, &err);
        const int64_t n_left = failing_host_blocks();
        failing_host_close(0);
        assert_int_equal(n_left, -1); /* the text itself, which the C library allocates and the caller frees */
        assert_int_equal(status, nth == 1 ? APR_E_MEMORY : APR_OK);
        assert_string_equal(err.text, nth == 1 ? "not enough memory for the page" : "");
        assert_true((apr_out_position(page) == 0) == (nth == 1));
        assert_int_equal(apr_html_close(page, status, &err), status);
        assert_int_equal(count_temporaries(work), 0);
    }
    assert_is_page("<main>\ntext"); /* of the one before */
}

static void a_print_escapes_its_texts_and_nothing_else(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&text, &n);

    (void)state;
    assert_non_null(out);
    apr_html_print(out, "<b title=\"%s\">%s</b> %d %lld %zu %.2f %g %08x %u%%", "\"a\"", "x<y&z", -1, 1LL << 40, sizeof(char), 0.125, 1e-9,
                   0xabcu, 7u);
    fclose(out);
    assert_string_equal(text, "<b title=\"&quot;a&quot;\">x&lt;y&amp;z</b> -1 1099511627776 1 0.12 1e-09 00000abc 7%");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_shows_also_why_the_answer_is_no, make_work, remove_work),
        cmocka_unit_test_setup_teardown(a_run_that_failed_leaves_the_old_page, make_work, remove_work),
        cmocka_unit_test_setup_teardown(a_page_that_cannot_be_closed_is_the_runs_failure, make_work, remove_work),
        cmocka_unit_test_setup_teardown(a_text_that_cannot_be_closed_is_missing_memory, make_work, remove_work),
        cmocka_unit_test(a_print_escapes_its_texts_and_nothing_else),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
