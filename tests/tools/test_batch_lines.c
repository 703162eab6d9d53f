/* tools/engine/requests/batch_lines.h: lines as they come from a file or a pipe. */
#include "tools/engine/requests/batch_lines.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct pipe_ends {
    int in, out;
} pipe_ends;

static pipe_ends open_pipe(void)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    return (pipe_ends){fds[1], fds[0]};
}

static void put(const pipe_ends *p, const char *text) { assert_int_equal(write(p->in, text, strlen(text)), strlen(text)); }

static apr_line_state read_line(apr_line_reader *r, bool may_wait, apr_line *line)
{
    apr_line_state state;
    assert_int_equal(apr_line_read(r, may_wait, &state, line, NULL), APR_OK);
    return state;
}

/* Long lines come in several calls. */
static apr_line_state read_long(apr_line_reader *r, apr_line *line)
{
    apr_line_state state;
    do state = read_line(r, true, line);
    while (state == APR_LINE_LATER);
    return state;
}

static void expect(apr_line_reader *r, const char *text, int64_t number)
{
    apr_line line;
    assert_int_equal(read_line(r, true, &line), APR_LINE_HERE);
    assert_int_equal(line.n_bytes, strlen(text));
    assert_memory_equal(line.bytes, text, line.n_bytes);
    assert_int_equal(line.number, number);
    assert_false(line.is_too_long);
}

static void a_line_that_has_not_come_yet_comes_later(void **state)
{
    const pipe_ends p = open_pipe();
    apr_line_reader r = {.fd = p.out, .name = "pipe"};
    apr_line line;
    (void)state;
    assert_int_equal(read_line(&r, false, &line), APR_LINE_LATER);
    put(&p, "one\ntw");
    expect(&r, "one", 1);
    assert_int_equal(read_line(&r, false, &line), APR_LINE_LATER);
    put(&p, "o\r\n\nlast");
    expect(&r, "two", 2);
    expect(&r, "", 3);
    close(p.in);
    expect(&r, "last", 4);
    assert_int_equal(read_line(&r, true, &line), APR_LINE_NONE);
    assert_int_equal(read_line(&r, true, &line), APR_LINE_NONE);
    apr_line_reader_close(&r);
    close(p.out);
}

static void spaces_alone_are_a_blank_line(void **state)
{
    const apr_line blank = {.bytes = " \t\r", .n_bytes = 3}, full = {.bytes = " x", .n_bytes = 2}, empty = {0},
                   long_one = {.is_too_long = true};
    (void)state;
    assert_true(apr_line_is_blank(&blank));
    assert_true(apr_line_is_blank(&empty));
    assert_false(apr_line_is_blank(&full));
    assert_false(apr_line_is_blank(&long_one));
}

static void long_lines_come_whole_and_longer_ones_are_passed_over(void **state)
{
    FILE *const file = tmpfile();
    const size_t n = (size_t)10 << 20;
    char *const text = malloc(n);
    apr_line line;
    (void)state;
    assert_true(file != NULL && text != NULL);
    memset(text, 'a', n);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fputs("\nshort\n", file);
    for (int i = 0; i < 7; i++) assert_int_equal(fwrite(text, 1, n, file), n);
    fputs("\nafter\n", file);
    assert_int_equal(fflush(file), 0);
    apr_line_reader r = {.fd = fileno(file), .name = "file"};
    assert_true(apr_line_rewind(&r));
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(read_long(&r, &line), APR_LINE_HERE);
        assert_int_equal(line.n_bytes, n);
        assert_memory_equal(line.bytes, text, n);
        expect(&r, "short", 2);
        assert_int_equal(read_long(&r, &line), APR_LINE_HERE);
        assert_true(line.is_too_long && line.bytes == NULL && line.number == 3);
        expect(&r, "after", 4);
        assert_int_equal(read_line(&r, true, &line), APR_LINE_NONE);
        assert_true(apr_line_rewind(&r));
    }
    apr_line_reader_close(&r);
    free(text);
    fclose(file);
}

static void a_line_without_an_end_hands_control_back(void **state)
{
    const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    apr_line_reader r = {.fd = zeros, .name = "zeros"};
    apr_line line;
    (void)state;
    assert_true(zeros >= 0);
    for (int i = 0; i < 100; i++) { /* also beyond the longest line */
        assert_int_equal(read_line(&r, true, &line), APR_LINE_LATER);
        assert_true(r.n <= APR_LINE_MAX_BYTES + (2 << 20));
    }
    assert_true(r.is_skipping);
    apr_line_reader_close(&r);
    close(zeros);
}

static void what_is_limited_ends_there(void **state)
{
    FILE *const file = tmpfile();
    apr_line line;
    (void)state;
    assert_non_null(file);
    fputs("one\ntwo\nthr", file);
    rewind(file);
    apr_line_reader r = {.fd = fileno(file), .name = "file", .is_limited = true, .n_left = 8};
    expect(&r, "one", 1);
    expect(&r, "two", 2);
    assert_int_equal(read_line(&r, true, &line), APR_LINE_NONE);
    apr_line_reader_close(&r);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_has_not_come_yet_comes_later),
        cmocka_unit_test(spaces_alone_are_a_blank_line),
        cmocka_unit_test(long_lines_come_whole_and_longer_ones_are_passed_over),
        cmocka_unit_test(a_line_without_an_end_hands_control_back),
        cmocka_unit_test(what_is_limited_ends_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
