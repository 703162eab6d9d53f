/* test_journal.c - formats/files/resume.h: what was written is read, a line that was cut off is none, and another byte is noticed. */
#include "formats/files/resume.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TERMS = 0x12345678 };

static const apr_record written[] = {
    {0, 430080, 0xffffffffu, "0 0 0 0x0p+0"}, {7, 0, 0, ""}, {UINT64_MAX, UINT64_MAX, 0x00000001u, "several words"}, {7, 512, 5, "again"}};
enum { N_WRITTEN = sizeof written / sizeof *written };

static size_t journal(char *text)
{
    size_t n = apr_journal_head(text, TERMS);
    for (int i = 0; i < N_WRITTEN; i++) n += apr_journal_line(text + n, &written[i]);
    return n;
}

static void what_was_written_is_read(void **state)
{
    char text[(N_WRITTEN + 1) * APR_JOURNAL_LINE_BYTES];
    apr_records records = {0};
    (void)state;
    assert_int_equal(apr_journal_read(&records, text, journal(text), TERMS, "j", NULL), APR_OK);
    assert_int_equal(records.n_items, N_WRITTEN);
    for (int i = 0; i < N_WRITTEN; i++) {
        assert_true(records.items[i].tensor == written[i].tensor && records.items[i].n_bytes == written[i].n_bytes);
        assert_int_equal(records.items[i].crc, written[i].crc);
        assert_string_equal(records.items[i].note, written[i].note);
    }
    apr_records_close(&records);
}

static void records_are_found_by_tensor_and_checksum(void **state)
{
    char text[(N_WRITTEN + 1) * APR_JOURNAL_LINE_BYTES];
    apr_records records = {0};
    (void)state;
    assert_null(apr_records_find(&records, 7, 5));
    assert_int_equal(apr_journal_read(&records, text, journal(text), TERMS, "j", NULL), APR_OK);
    apr_records_sort(&records);
    for (int i = 0; i < N_WRITTEN; i++)
        assert_string_equal(apr_records_find(&records, written[i].tensor, written[i].crc)->note, written[i].note);
    assert_null(apr_records_find(&records, 7, 6));
    assert_null(apr_records_find(&records, 8, 5));
    apr_records_close(&records);
}

static void an_unfinished_line_is_ignored(void **state)
{
    char text[(N_WRITTEN + 1) * APR_JOURNAL_LINE_BYTES];
    const size_t n_all = journal(text);
    (void)state;
    for (size_t n = 0; n <= n_all; n++) {
        char *const exact = malloc(n + 1); /* so that a sanitizer sees who reads further */
        apr_records records = {0};
        size_t n_lines = 0;
        for (size_t i = 0; i < n; i++) n_lines += text[i] == '\n';
        memcpy(exact, text, n);
        char *const shrunk = n > 0 ? realloc(exact, n) : exact;
        assert_int_equal(apr_journal_read(&records, shrunk, n, TERMS, "j", NULL), APR_OK);
        assert_int_equal(records.n_items, n_lines > 0 ? n_lines - 1 : 0);
        apr_records_close(&records);
        free(shrunk);
    }
}

static void zeros_after_the_last_line_are_ignored(void **state)
{
    char text[(N_WRITTEN + 2) * APR_JOURNAL_LINE_BYTES] = "";
    apr_records records = {0};
    const size_t n = journal(text);
    (void)state;
    assert_int_equal(apr_journal_read(&records, text, n + 100, TERMS, "j", NULL), APR_OK); /* as a file system leaves them after a crash */
    assert_int_equal(records.n_items, N_WRITTEN);
    apr_records_close(&records);
}

static void any_other_byte_is_noticed(void **state)
{
    char text[(N_WRITTEN + 1) * APR_JOURNAL_LINE_BYTES];
    const size_t n = journal(text);
    (void)state;
    for (size_t i = 0; i + 1 < n; i++) /* but for the last '\n': without it the line is cut off */
        for (int change = 1; change < 256; change += 37) {
            apr_records records = {0};
            apr_error err = {0};
            text[i] = (char)(text[i] ^ change);
            if (apr_journal_read(&records, text, n, TERMS, "folder/a.journal", &err) != APR_E_DAMAGED) fail_msg("byte %zu ^ %d", i, change);
            assert_non_null(strstr(err.text, "folder/a.journal: line "));
            text[i] = (char)(text[i] ^ change);
            apr_records_close(&records);
        }
}

static void other_terms_are_noticed(void **state)
{
    char text[(N_WRITTEN + 1) * APR_JOURNAL_LINE_BYTES];
    apr_records records = {0};
    apr_error err = {0};
    (void)state;
    assert_int_equal(apr_journal_read(&records, text, journal(text), TERMS + 1, "j", &err), APR_E_DAMAGED);
    assert_int_equal(records.n_items, 0);
    apr_records_close(&records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),      cmocka_unit_test(records_are_found_by_tensor_and_checksum),
        cmocka_unit_test(an_unfinished_line_is_ignored), cmocka_unit_test(zeros_after_the_last_line_are_ignored),
        cmocka_unit_test(any_other_byte_is_noticed),     cmocka_unit_test(other_terms_are_noticed),
    };
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
