/* test_dtype.c - facts of number formats: what follows from their columns, and that nothing follows from their places. */
#include "formats/number/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Each type's class, spelled out once more: what is a weight, and what is only carried, decides what is converted. */
static void classes_say_what_is_a_weight(void **state)
{
    static const char floats[] = " f32 f16 bf16 f64 ", others[] = " i8 i16 i32 i64 u8 u16 u32 u64 bool c64 e8m0 ";
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        char name[32] = " ";
        strcat(strcat(name, apr_dtypes[d].name), " ");
        const bool is_float = strstr(floats, name) != NULL, is_other = strstr(others, name) != NULL;
        assert_int_equal(apr_dtype_is_float((apr_dtype)d), is_float);
        assert_int_equal(apr_dtype_is_quantized((apr_dtype)d), !is_float && !is_other);
        assert_int_equal(apr_dtype_is_weights((apr_dtype)d), !is_other);
    }
    assert_false(apr_dtype_is_float(APR_DTYPE_COUNT) || apr_dtype_is_quantized(APR_DTYPE_COUNT) || apr_dtype_is_weights(APR_DTYPE_COUNT));
}

static void every_id_and_name_leads_back_to_its_type(void **state)
{
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype_facts *const facts = &apr_dtypes[d];
        assert_int_equal(apr_dtype_by_name(facts->name), d);
        assert_int_equal(apr_dtype_by_apr_id((uint32_t)facts->apr_id), d);
        if (facts->ggml_id >= 0) assert_int_equal(apr_dtype_by_ggml_id((uint32_t)facts->ggml_id), d);
        if (facts->safetensors_name != NULL) assert_int_equal(apr_dtype_by_safetensors_name(facts->safetensors_name), d);
    }
}

static void rows_are_whole_blocks_but_of_flat_types(void **state)
{
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype_facts *const facts = &apr_dtypes[d];
        const int elems = facts->elems_per_block, front = facts->scales == APR_SCALES_FIRST ? 4 : 0;
        assert_int_equal(apr_row_bytes((apr_dtype)d, 0), 0);
        assert_int_equal(apr_row_bytes((apr_dtype)d, 3 * elems), 3 * facts->bytes_per_block + front);
        if (elems > 1) assert_int_equal(apr_row_bytes((apr_dtype)d, elems + 1), facts->flat ? 2 * facts->bytes_per_block : -1);
        assert_int_equal(apr_row_bytes((apr_dtype)d, INT64_MAX / elems * elems) < 0, facts->bytes_per_block > elems || front > 0);
    }
    assert_int_equal(apr_row_bytes(APR_F32, -1), -1);
    assert_int_equal(apr_row_bytes(APR_DTYPE_COUNT, 1), -1);
}

/* Wherever they stand in the list. */
static void of_any_two_types_exactly_one_comes_first(void **state)
{
    (void)state;
    for (int a = 0; a < APR_DTYPE_COUNT; a++)
        for (int b = 0; b < APR_DTYPE_COUNT; b++)
            assert_int_equal(apr_dtype_precedes((apr_dtype)a, (apr_dtype)b) + apr_dtype_precedes((apr_dtype)b, (apr_dtype)a), a != b);
    assert_true(apr_dtype_precedes(APR_F32, APR_F16) && apr_dtype_precedes(APR_F16, APR_BF16));
    assert_true(apr_dtype_precedes(APR_BF16, APR_Q4_0)); /* a plain number, though ggml had it later */
    assert_true(apr_dtype_precedes(APR_Q4_0, APR_Q4_K) && apr_dtype_precedes(APR_MXFP4, APR_APR_Q4));
}

static void the_type_of_most_elements_is_named(void **state)
{
    int64_t n_elems[APR_DTYPE_COUNT] = {0};
    (void)state;
    assert_int_equal(apr_dtype_most_common(n_elems), APR_DTYPE_COUNT);
    n_elems[APR_Q4_K] = 7;
    n_elems[APR_F16] = 5;
    assert_int_equal(apr_dtype_most_common(n_elems), APR_Q4_K);
    n_elems[APR_F16] = 7;
    assert_int_equal(apr_dtype_most_common(n_elems), APR_F16);
    n_elems[APR_F32] = 7;
    assert_int_equal(apr_dtype_most_common(n_elems), APR_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_say_what_is_a_weight),
        cmocka_unit_test(every_id_and_name_leads_back_to_its_type),
        cmocka_unit_test(rows_are_whole_blocks_but_of_flat_types),
        cmocka_unit_test(of_any_two_types_exactly_one_comes_first),
        cmocka_unit_test(the_type_of_most_elements_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
