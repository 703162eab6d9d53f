/* test_pipe_extents.c - a device's threads that write at the tensors' offsets in a file: same bytes and checksum as in order, and whatever
 * fails meanwhile ends the run. */
#include "convert/pipe.h"

#include "formats/base/crc32.h"
#include "tests/support/pipe_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a sink that knows its tensors' offsets ---- */

typedef struct file_sink {
    apr_sink base;
    FILE *file;
    const apr_pipe_item *items;
    size_t next; /* to be done */
    uint64_t n;
    uint32_t crc;              /* of what was put and passed */
    size_t n_passed, fails_in; /* tensors; in that one the extent is on a full disk; SIZE_MAX: in none */
} file_sink;

static apr_status put_in_file(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    file_sink *const s = (file_sink *)sink;
    const apr_extent next = {.fd = fileno(s->file), .offset = s->n, .n_bytes = n_bytes, .path = "a file", .advice = ""};
    assert_int_equal(apr_extent_put(&next, 0, bytes, n_bytes, err), APR_OK);
    s->crc = apr_crc32(s->crc, bytes, n_bytes);
    s->n += n_bytes;
    return APR_OK;
}

static uint64_t next_bytes(const file_sink *s)
{
    const apr_pipe_item *const item = &s->items[s->next];
    return (uint64_t)apr_row_bytes(item->to, apr_tensor_elems(item->from));
}

static apr_status extent_of(apr_sink *sink, apr_extent *extent, apr_error *err)
{
    const file_sink *const s = (file_sink *)sink;
    (void)err;
    *extent = (apr_extent){.fd = s->next == s->fails_in ? -1 : fileno(s->file),
                           .offset = s->n,
                           .n_bytes = next_bytes(s),
                           .path = "a file",
                           .advice = "; buy a disk",
                           .wants_crc = true};
    return APR_OK;
}

static apr_status pass(apr_sink *sink, uint32_t crc, apr_error *err)
{
    file_sink *const s = (file_sink *)sink;
    (void)err;
    s->crc = apr_crc32_combine(s->crc, crc, next_bytes(s));
    s->n += next_bytes(s);
    s->n_passed++;
    return APR_OK;
}

static apr_status done(apr_sink *sink, size_t tensor, const char *note, apr_error *err)
{
    (void)err, (void)note;
    ((file_sink *)sink)->next = tensor + 1;
    return APR_OK;
}

static file_sink new_file(const apr_pipe_item *items, size_t fails_in)
{
    static const apr_sink_ops ops = {.put = put_in_file, .extent = extent_of, .pass = pass, .done = done};
    const file_sink s = {.base = {&ops}, .file = tmpfile(), .items = items, .fails_in = fails_in};
    assert_non_null(s.file);
    return s;
}

/* ---- tests ---- */

static void threads_write_at_the_offsets_of_tensors(void **state)
{
    pipe_fixture f;
    memory_sink a = memory_sink_new(1 << 25);
    (void)state;
    pipe_fixture_make(&f);
    assert_int_equal(pipe_fixture_run(&f, &a, false, false, NULL), APR_OK);
    const apr_out_of_range on_host = f.items[0].out_of_range;
    for (fake_codecs_is.n_devices = 1; fake_codecs_is.n_devices <= 3; fake_codecs_is.n_devices++) {
        file_sink b = new_file(f.items, SIZE_MAX);
        assert_int_equal(pipe_fixture_run_into(&f, &b.base, true, false, NULL), APR_OK);
        assert_int_equal(b.n, a.n);
        assert_int_equal(b.crc, apr_crc32(0, a.bytes, a.n));
        assert_true(b.n_passed > 6);
        assert_int_equal(on_host.n_nonfinite, f.items[0].out_of_range.n_nonfinite);
        uint8_t *const bytes = malloc(a.n);
        assert_non_null(bytes);
        assert_int_equal(pread(fileno(b.file), bytes, a.n, 0), (ssize_t)a.n);
        assert_memory_equal(bytes, a.bytes, a.n);
        assert_int_equal(fake_codecs_is.n_open, 0);
        free(bytes);
        fclose(b.file);
    }
    fake_codecs_is.n_devices = 1;
    free(a.bytes);
    pipe_fixture_close(&f);
}

static void any_failure_while_threads_write_ends_the_run(void **state)
{
    pipe_fixture f;
    (void)state;
    pipe_fixture_make(&f);
    for (fake_codecs_is.fail_at = 1; fake_codecs_is.fail_at <= 6; fake_codecs_is.fail_at++) {
        file_sink s = new_file(f.items, SIZE_MAX);
        apr_error err = {0};
        assert_int_equal(pipe_fixture_run_into(&f, &s.base, true, false, &err), APR_E_DEVICE);
        assert_string_equal(err.text, "the device broke");
        fclose(s.file);
    }
    fake_codecs_is.fail_at = 0;
    for (size_t item = 0; item < 4; item++) {
        file_sink s = new_file(f.items, item);
        apr_error err = {0};
        assert_int_equal(pipe_fixture_run_into(&f, &s.base, true, false, &err), APR_E_IO);
        assert_non_null(strstr(err.text, "buy a disk"));
        assert_int_equal(fake_codecs_is.n_open, 0);
        fclose(s.file);
    }
    pipe_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_write_at_the_offsets_of_tensors),
        cmocka_unit_test(any_failure_while_threads_write_ends_the_run),
    };
    return cmocka_run_group_tests_name("pipe_extents", tests, NULL, NULL);
}
