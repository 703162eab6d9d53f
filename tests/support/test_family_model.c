/* tests/support/family_model.h: the weights of a synthetic family are those of the formula, to the bit. */
#include "tests/support/family_model.h"
#include "tests/support/vectors.h"
#include "tests/support/work_folder.h"

/* Of llama's final norm, as the set's author computed them: 0.9219, 0.7422, 0.9805, 1.0547. */
static void weights_are_those_of_the_formula(void **state)
{
    static const uint16_t reference[] = {0x3f6c, 0x3f3e, 0x3f7b, 0x3f87};
    apr_error err = {0};
    vectors model;
    size_t n_bytes;

    (void)state;
    if (family_write("tests/data/families/llama", in_work("llama"), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(vectors_open(&model, in_work("llama/model.safetensors")));
    const void *const norm = vectors_find(&model, "model.norm.weight", &n_bytes);
    assert_non_null(norm);
    assert_int_equal(n_bytes, 64);
    assert_memory_equal(norm, reference, sizeof reference);
    vectors_close(&model);
}

static void zero_it(void *user, const char *name, const int64_t *dims, int rank, float *values)
{
    int *const n_seen = user;
    (*n_seen)++;
    assert_true(rank == 1 || rank == 2);
    if (strcmp(name, "model.norm.weight") == 0) memset(values, 0, (size_t)dims[0] * sizeof *values);
}

static void an_edit_sees_every_tensor(void **state)
{
    int n_seen = 0;
    const family_edit edit = {zero_it, &n_seen};
    apr_error err = {0};
    vectors model;

    (void)state;
    if (family_write("tests/data/families/qwen3", in_work("qwen3"), &edit, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(vectors_open(&model, in_work("qwen3/model.safetensors")));
    assert_int_equal(n_seen, 3 + 4 * 11);
    const uint8_t *const norm = vectors_find(&model, "model.norm.weight", NULL);
    for (size_t i = 0; i < 64; i++) assert_int_equal(norm[i], 0);
    vectors_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_formula),
        cmocka_unit_test(an_edit_sees_every_tensor),
    };
    return cmocka_run_group_tests_name("family model", tests, make_work, remove_work);
}
