/* tools/report/html.h, sha256.h, apr_report_page of report.h: a page is there whole or not at all, and a failure of its last step is the run's. */
#define _POSIX_C_SOURCE 200809L
#include "tools/report/html.h"
#include "tools/report/page.h"
#include "tools/report/report.h"
#include "tools/report/sha256.h"

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
    static char text[1 << 15];
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

/* fclose of a text in memory is where its last bytes are allocated; the page is one without its list of contents, and one with it. */
static void a_text_that_cannot_be_closed_is_missing_memory(void **state)
{
    (void)state;
    for (int nth = 2; nth >= 0; nth--) {
        apr_error err = {0};
        apr_out *const page = begin_page();
        failing_host_close(nth);
        failing_host_allocation(0);
        const apr_status status = apr_report_page(write_page, "text", page, &err);
        const int64_t n_left = failing_host_blocks();
        failing_host_close(0);
        assert_int_equal(n_left, nth == 1 ? -1 : -2); /* the texts themselves, which the C library allocates and the caller frees */
        assert_int_equal(status, nth > 0 ? APR_E_MEMORY : APR_OK);
        assert_string_equal(err.text, nth > 0 ? "not enough memory for the page" : "");
        assert_true((apr_out_position(page) == 0) == (nth > 0));
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

/* Pages with that many sections. */
static void write_sections(apr_report *r, const void *n)
{
    apr_html_open(r->out, mark, "model", "tested");
    apr_html_contents(r->out);
    for (int i = 0; i < *(const int *)n; i++) {
        char title[32];
        snprintf(title, sizeof title, "Part %d & more", i);
        apr_html_section(r->out, title);
    }
}

static void sections_are_listed_where_there_are_more_than_three(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        apr_out *const page = begin_page();
        assert_int_equal(apr_report_page(write_sections, &n, page, NULL), APR_OK);
        assert_int_equal(apr_html_close(page, APR_OK, NULL), APR_OK);
        const char *const text = page_text();
        assert_int_equal(strstr(text, "<nav class=\"contents\">") != NULL, n > 3);
        assert_int_equal(strstr(text, "<a href=\"#part-1--more\">Part 1 &amp; more</a>") != NULL, n > 3);
        assert_non_null(strstr(text, "<h2 id=\"part-1--more\">Part 1 &amp; more</h2>"));
    }
}

static void the_json_of_a_page_cannot_end_its_script(void **state)
{
    static char answer[] = "{\"a\":\"</script><b>\"}";
    const apr_page_options plain = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&text, &n);

    (void)state;
    assert_non_null(out);
    apr_page_about_html(out, &(apr_page_about){.options = &plain, .answer = answer});
    apr_html_lines(out, "a<b\n\tc\x1b d", 9);
    fclose(out);
    assert_non_null(strstr(text, "<script type=\"application/json\" id=\"answer\">{\"a\":\"\\u003c/script>\\u003cb>\"}</script>\n"));
    assert_non_null(strstr(text, "a&lt;b\n\tc\\x1b d"));
    free(text);
}

/* The values of FIPS 180-4's examples and of the coreutils. */
static void sums_are_those_of_the_standard(void **state)
{
    static const struct {
        const char *bytes;
        size_t n_repeats;
        const char *sum;
    } cases[] = {
        {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 15625,
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
    char text[APR_SHA256_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_sha256 hash;
        apr_sha256_start(&hash);
        for (size_t k = 0; k < cases[i].n_repeats; k++) apr_sha256_add(&hash, cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(apr_sha256_text(&hash, text), cases[i].sum);
    }
    for (size_t n = 0; n < 130; n++) { /* in two parts as in one */
        static const uint8_t zeros[130];
        char other[APR_SHA256_TEXT];
        apr_sha256 whole, parts;
        apr_sha256_start(&whole);
        apr_sha256_start(&parts);
        apr_sha256_add(&whole, zeros, 130);
        apr_sha256_add(&parts, zeros, n);
        apr_sha256_add(&parts, zeros + n, 130 - n);
        assert_string_equal(apr_sha256_text(&whole, text), apr_sha256_text(&parts, other));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_shows_also_why_the_answer_is_no, make_work, remove_work),
        cmocka_unit_test_setup_teardown(a_run_that_failed_leaves_the_old_page, make_work, remove_work),
        cmocka_unit_test_setup_teardown(a_page_that_cannot_be_closed_is_the_runs_failure, make_work, remove_work),
        cmocka_unit_test_setup_teardown(a_text_that_cannot_be_closed_is_missing_memory, make_work, remove_work),
        cmocka_unit_test_setup_teardown(sections_are_listed_where_there_are_more_than_three, make_work, remove_work),
        cmocka_unit_test(the_json_of_a_page_cannot_end_its_script),
        cmocka_unit_test(sums_are_those_of_the_standard),
        cmocka_unit_test(a_print_escapes_its_texts_and_nothing_else),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
