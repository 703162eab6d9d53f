/* test_toy.c - a toy file, read and written. */
#include "formats/toy/toy.h"
#include "tests/support/work_folder.h"

static const uint8_t file[] = {'T', 'O', 'Y', '\n', 1, 0, 0, 0, 1, 0, 'w', 7 /* u8 */, 1, 3, 0, 0, 0, 0, 0, 0, 0, 10, 20, 30};

static void a_file_becomes_a_model_and_the_same_file(void **state)
{
    apr_model m;
    apr_sink *sink;
    (void)state;
    write_file(in_work("a.toy"), file, sizeof file);
    assert_int_equal(apr_model_open(&m, in_work("a.toy"), NULL), APR_OK);
    assert_int_equal(m.n_tensors, 1);
    assert_string_equal(m.tensors[0].name, "w");
    assert_memory_equal(m.tensors[0].data, file + sizeof file - 3, 3);
    assert_int_equal(apr_format_of_path("b.toy"), APR_FORMAT_TOY);
    assert_int_equal(apr_sink_open(&sink, APR_FORMAT_TOY, in_work("b.toy"), &m, NULL, NULL), APR_OK);
    assert_int_equal(apr_sink_put(sink, m.tensors[0].data, 3, NULL), APR_OK);
    assert_int_equal(apr_sink_finish(sink, NULL), APR_OK);
    assert_same_file(in_work("a.toy"), in_work("b.toy"));
    apr_model_close(&m);
}

static void what_is_cut_off_is_damaged(void **state)
{
    apr_model m;
    (void)state;
    for (size_t n = 0; n < sizeof file; n++) assert_int_equal(apr_toy_read(&m, file, n, "cut", NULL), APR_E_DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_becomes_a_model_and_the_same_file),
        cmocka_unit_test(what_is_cut_off_is_damaged),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
