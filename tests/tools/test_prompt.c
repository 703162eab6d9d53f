/* tools/engine/text_input.h: a text that is a file is an input, which no output replaces; one that comes through a pipe is the same text. */
#define _XOPEN_SOURCE 700 /* mkfifo */
#include "tools/engine/text_input.h"

#include "formats/files/out.h"
#include "tests/support/work_folder.h"

#include <sys/wait.h>

static const char words[] = "In the beginning\0God created";

static void assert_is(const apr_text_input *text, const char *bytes, size_t n_bytes)
{
    assert_int_equal(text->n_bytes, n_bytes);
    assert_memory_equal(text->bytes, bytes, n_bytes);
}

static void a_file_is_an_input_whatever_its_size(void **state)
{
    apr_error err = {0};
    apr_text_input text;

    (void)state;
    apr_inputs_start();
    for (size_t n = sizeof words;; n = 0) {
        write_file(in_work("text"), words, n);
        assert_int_equal(apr_text_input_open(&text, in_work("text"), &err), APR_OK);
        assert_is(&text, words, n);
        assert_string_equal(text.path, in_work("text"));
        assert_int_equal(apr_out_check(in_work("text"), false, &err), APR_E_USAGE);
        apr_text_input_close(&text);
        assert_int_equal(apr_out_check(in_work("text"), false, &err), APR_E_USAGE); /* until the tool has done its work */
        if (n == 0) break;
    }
    apr_inputs_end();
    assert_int_equal(apr_out_check(in_work("text"), false, &err), APR_OK);
}

/* /proc states a size of 0 for what can be read there. */
static void a_file_that_states_no_size_is_read(void **state)
{
    apr_error err = {0};
    apr_text_input text;

    (void)state;
    assert_int_equal(apr_text_input_open(&text, "/proc/self/status", &err), APR_OK);
    assert_true(text.n_bytes > 0);
    assert_memory_equal(text.bytes, "Name:", 5);
    apr_text_input_close(&text);
}

static void what_comes_through_a_pipe_is_read_to_its_end(void **state)
{
    apr_error err = {0};
    apr_text_input text;
    int status;

    (void)state;
    assert_int_equal(mkfifo(in_work("pipe"), 0600), 0);
    const pid_t writer = fork();
    if (writer == 0) {
        write_file(in_work("pipe"), words, sizeof words);
        _exit(0);
    }
    assert_int_equal(apr_text_input_open(&text, in_work("pipe"), &err), APR_OK);
    assert_is(&text, words, sizeof words);
    assert_null(apr_inputs());
    assert_int_equal(waitpid(writer, &status, 0), writer);
    apr_text_input_close(&text);
    apr_text_input_close(&text); /* once more is nothing */
}

static void a_text_without_bytes_is_reported(void **state)
{
    apr_error err = {0};
    apr_text_input text;

    (void)state;
    assert_int_equal(apr_text_input_open(&text, in_work("missing"), &err), APR_E_IO);
    assert_non_null(strstr(err.text, "missing: No such file"));
    err = (apr_error){0};
    assert_int_equal(apr_text_input_open(&text, work, &err), APR_E_IO);
    assert_non_null(strstr(err.text, "Is a directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_an_input_whatever_its_size),
        cmocka_unit_test(a_file_that_states_no_size_is_read),
        cmocka_unit_test(what_comes_through_a_pipe_is_read_to_its_end),
        cmocka_unit_test(a_text_without_bytes_is_reported),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
