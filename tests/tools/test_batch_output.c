/* tools/engine/requests/batch_output.h: what becomes of answers when another program touches their file. */
#include "tools/engine/requests/batch_output.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char first[] = "{\"line\":1,\"text\":\"a\",\"key\":\"00000007-00000001\"}\n";
static const char second[] = "{\"line\":2,\"text\":\"b\",\"key\":\"00000007-00000002\"}\n";

typedef struct place {
    char folder[32], path[64], other[64];
} place;

static place make_place(void)
{
    place p = {.folder = "/tmp/aprkit-test-XXXXXX"};
    assert_non_null(mkdtemp(p.folder));
    snprintf(p.path, sizeof p.path, "%s/a.jsonl", p.folder);
    snprintf(p.other, sizeof p.other, "%s/b.jsonl", p.folder);
    return p;
}

static void remove_place(const place *p)
{
    unlink(p->path);
    unlink(p->other);
    assert_int_equal(rmdir(p->folder), 0);
}

static void put(const char *path, const char *text)
{
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void expect_text(const char *path, const char *text)
{
    char bytes[512];
    FILE *const file = fopen(path, "r");
    assert_non_null(file);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, n);
}

static void open_it(apr_batch_output *o, const place *p, bool resume)
{
    assert_int_equal(apr_batch_output_open(o, p->path, resume, STDIN_FILENO, 7, NULL), APR_OK);
}

static void write_first(apr_batch_output *o) { assert_int_equal(apr_batch_output_write(o, first, strlen(first), NULL), APR_OK); }

static void remove_file(const place *p) { assert_int_equal(unlink(p->path), 0); }
static void rename_file(const place *p) { assert_int_equal(rename(p->path, p->other), 0); }
static void empty_file(const place *p) { assert_int_equal(truncate(p->path, 0), 0); }

static void replace_file(const place *p)
{
    put(p->other, first);
    assert_int_equal(rename(p->other, p->path), 0);
}

static void add_to_file(const place *p)
{
    FILE *const file = fopen(p->path, "a");
    assert_non_null(file);
    fputs("x", file);
    assert_int_equal(fclose(file), 0);
}

static void nothing_is_called_answered_that_is_not_there(void **state)
{
    static void (*const how[])(const place *) = {remove_file, rename_file, empty_file, replace_file, add_to_file};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof how / sizeof *how; i++) {
        const place p = make_place();
        apr_error err = {0};
        apr_batch_output o;
        open_it(&o, &p, false);
        write_first(&o);
        how[i / 2](&p);
        const apr_status status = i % 2 == 0 ? apr_batch_output_write(&o, second, strlen(second), &err) : apr_batch_output_finish(&o, &err);
        assert_int_equal(status, APR_E_IO);
        assert_non_null(strstr(err.text, p.path));
        assert_non_null(strstr(err.text, "another program"));
        apr_batch_output_close(&o);
        remove_place(&p);
    }
}

static void an_emptied_file_is_resumed(void **state)
{
    const place p = make_place();
    apr_batch_output o;
    (void)state;
    open_it(&o, &p, false);
    write_first(&o);
    empty_file(&p);
    assert_int_equal(apr_batch_output_write(&o, second, strlen(second), NULL), APR_E_IO);
    apr_batch_output_close(&o);
    open_it(&o, &p, true);
    assert_int_equal(o.n_done, 0);
    write_first(&o);
    assert_int_equal(apr_batch_output_finish(&o, NULL), APR_OK);
    apr_batch_output_close(&o);
    expect_text(p.path, first);
    remove_place(&p);
}

static void lines_are_added_at_the_end_of_what_is_there(void **state)
{
    const place p = make_place();
    char both[sizeof first + sizeof second];
    apr_batch_output o;
    (void)state;
    snprintf(both, sizeof both, "%s%s", first, second);
    put(p.path, first);
    add_to_file(&p);
    assert_int_equal(truncate(p.path, (off_t)strlen(first)), 0);
    open_it(&o, &p, true);
    assert_int_equal(o.n_done, 1);
    assert_true((fcntl(o.fd, F_GETFL) & O_APPEND) != 0);
    assert_int_equal(apr_batch_output_write(&o, second, strlen(second), NULL), APR_OK);
    assert_int_equal(apr_batch_output_finish(&o, NULL), APR_OK);
    apr_batch_output_close(&o);
    expect_text(p.path, both);
    remove_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_called_answered_that_is_not_there),
        cmocka_unit_test(an_emptied_file_is_resumed),
        cmocka_unit_test(lines_are_added_at_the_end_of_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
