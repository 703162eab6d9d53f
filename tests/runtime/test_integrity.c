/* runtime/check/integrity.h: a file as it was written has no results; a flipped bit, a NaN and a broken companion do.
 */
#include "runtime/check/integrity.h"
#include "tests/support/apr_fixture.h"

#include <math.h>

/* The findings about the file at `path`; close both. */
static void check_file(apr_model *model, apr_integrity *found, const char *path)
{
    apr_error err = {0};
    if (apr_model_open(model, path, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_integrity_check(found, model, NULL, &err) != APR_OK) fail_msg("%s", err.text);
}

static char *write_full(void)
{
    char *const path = make_path();
    apr_error err = {0};
    apr_model m;

    make_full_model(&m);
    if (write_model(&m, path, NULL, 1000, &err) != APR_OK) fail_msg("%s", err.text);
    apr_model_close(&m);
    return path;
}

/* The byte where the data of a tensor of the file begins. */
static size_t data_offset(const char *path, const char *name)
{
    apr_model m;
    assert_int_equal(apr_model_open(&m, path, NULL), APR_OK);
    const apr_tensor *const t = apr_model_find(&m, name);
    assert_non_null(t);
    const size_t offset = (size_t)(t->data - m.maps[0].data);
    apr_model_close(&m);
    return offset;
}

static void flip(const char *path, size_t offset)
{
    FILE *const file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

static void what_was_written_has_its_checksums(void **state)
{
    (void)state;
    char *const path = write_full();
    apr_model m;
    apr_integrity found;

    check_file(&m, &found, path);
    assert_true(found.n_of[APR_FOUND_CHECKSUM] == 0 && found.n_stated == m.n_tensors && found.n_good == m.n_tensors);
    assert_true(found.footer == APR_FOOTER_GOOD && found.n_values > 2000 && found.file_bytes == m.maps[0].n_bytes);
    assert_int_equal(found.n_of[APR_FOUND_ATTACHMENT], 1); /* its tokenizer.json is none */
    apr_integrity_close(&found);
    apr_model_close(&m);
    drop_path(path);
}

static void a_flipped_bit_is_found_in_its_tensor(void **state)
{
    (void)state;
    char *const path = write_full();
    apr_model m;
    apr_integrity found;

    flip(path, data_offset(path, "odd") + 5);
    check_file(&m, &found, path);
    assert_true(found.n_of[APR_FOUND_CHECKSUM] == 2 && found.n_good == m.n_tensors - 1 && found.footer == APR_FOOTER_BAD);
    assert_true(found.findings[0].kind == APR_FOUND_CHECKSUM && found.findings[0].name == NULL); /* the file's own */
    const apr_tensor *const odd = apr_model_find(&m, "odd");
    const apr_integrity_result *its = NULL;
    for (size_t i = 1; i < found.n_findings; i++)
        if (found.findings[i].kind == APR_FOUND_CHECKSUM) its = &found.findings[i];
    assert_non_null(its);
    assert_string_equal(its->name, "odd");
    assert_true(its->stated != its->actual && its->actual == apr_crc32(0, odd->data, odd->n_bytes));
    apr_integrity_close(&found);
    apr_model_close(&m);
    drop_path(path);
}

static void nan_values_are_counted_and_the_first_is_named(void **state)
{
    (void)state;
    float values[12] = {0}, good[4] = {1, 2, 3, 4};
    int32_t ints[2] = {0x7fc00000, -1}; /* NaN, as a float */
    apr_tensor tensors[3] = {tensor_of("good", APR_F32, 1, 4, 0), tensor_of("bad", APR_F32, 2, 3, 4), tensor_of("ints", APR_I32, 1, 2, 0)};
    const apr_model m = {.path = "made", .tensors = tensors, .n_tensors = 3};
    apr_integrity found;

    values[7] = NAN;
    values[10] = -INFINITY;
    tensors[0].data = (const uint8_t *)good;
    tensors[1].data = (const uint8_t *)values;
    tensors[2].data = (const uint8_t *)ints;
    assert_int_equal(apr_integrity_check(&found, &m, NULL, NULL), APR_OK);
    assert_true(found.n_findings == 1 && found.n_of[APR_FOUND_NOT_FINITE] == 1 && found.n_nonfinite == 2 && found.n_stated == 0);
    assert_int_equal(found.n_values, 16); /* integers are none of them */
    assert_string_equal(found.findings[0].name, "bad");
    assert_true(found.findings[0].n == 2 && found.findings[0].n_values == 12 && found.findings[0].first == 7);
    apr_integrity_close(&found);
}

static void companions_that_do_not_parse_are_found(void **state)
{
    (void)state;
#define FILE_OF(name, text)                               \
    {                                                     \
        (name), (const uint8_t *)(text), sizeof(text) - 1 \
    }
    const apr_attachment files[] = {
        FILE_OF("config.json", "{\"a\": 1}"),
        FILE_OF("tokenizer.json", "{\"a\": 1"),
        FILE_OF("chat_template.jinja", "{{ x }}"),
        FILE_OF("other.jinja", "\xff\xfe"),
        FILE_OF("nul.jinja", "a\0b"),
        FILE_OF("weights.bin", "\xff{"),
        FILE_OF("json", "{"),
        /* no such ending */ FILE_OF("twice.json", "{\"a\":1,\"a\":2}"),
    };
    static const char *const bad[] = {"tokenizer.json", "other.jinja", "nul.jinja", "twice.json"};
    const apr_model m = {.path = "made", .attachments = files, .n_attachments = sizeof files / sizeof *files};
    apr_integrity found;

    assert_int_equal(apr_integrity_check(&found, &m, NULL, NULL), APR_OK);
    assert_true(found.n_findings == 4 && found.n_of[APR_FOUND_ATTACHMENT] == 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(found.findings[i].name, bad[i]);
        assert_true(found.findings[i].kind == APR_FOUND_ATTACHMENT && found.findings[i].text[0] != '\0');
        assert_null(strstr(found.findings[i].text, bad[i])); /* which is reported separately */
    }
    apr_integrity_close(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_has_its_checksums),
        cmocka_unit_test(a_flipped_bit_is_found_in_its_tensor),
        cmocka_unit_test(nan_values_are_counted_and_the_first_is_named),
        cmocka_unit_test(companions_that_do_not_parse_are_found),
    };
    return cmocka_run_group_tests_name("integrity", tests, NULL, NULL);
}
