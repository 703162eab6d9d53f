/* formats/tensor/library_type.h: the table of layouts, and how their products are rounded. */
#include "formats/tensor/library_type.h"
#include "formats/tensor/packing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void every_layout_has_the_type_of_its_table(void **state)
{
    (void)state;
    static const struct {
        const char *config; /* torch_dtype */
        apr_dtype tensor, scales;
        bool has_scales, is_packed;
        apr_code_level level;
        apr_dtype library;
        bool is_products;
    } rows[] = {
        {"bfloat16", APR_F8_E4M3, APR_F32, true, false, 0, APR_BF16, true},
        {"float16", APR_F8_E4M3, APR_F32, true, false, 0, APR_F16, true},
        {"float32", APR_F8_E4M3, APR_F32, true, false, 0, APR_F32, false},
        {"bfloat16", APR_F8_E4M3, APR_F16, true, false, 0, APR_F16, true},
        {NULL, APR_F8_E4M3, APR_BF16, true, false, 0, APR_BF16, true},
        {NULL, APR_F8_E4M3, APR_F32, true, false, 0, APR_BF16, true},
        {"bfloat16", APR_F8_E4M3, APR_F32, false, false, 0, APR_DTYPE_COUNT, false},
        {"bfloat16", APR_BF16, APR_F32, false, false, 0, APR_DTYPE_COUNT, false},
        {"bfloat16", APR_NVFP4, APR_F32, true, false, 0, APR_BF16, true},
        {"bfloat16", APR_F32, APR_F8_E4M3, false, true, APR_LEVEL_E2M1, APR_BF16, true},
        {"bfloat16", APR_F32, APR_F32, false, true, APR_LEVEL_SIGNED, APR_F32, false},
        {"bfloat16", APR_F16, APR_F16, false, true, APR_LEVEL_UNSIGNED, APR_F16, false},
        {"float16", APR_BF16, APR_E8M0, false, true, APR_LEVEL_E2M1, APR_BF16, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const apr_model model = {.hparams.torch_dtype = rows[i].config};
        const apr_tensor scale = {.name = "scale", .dtype = rows[i].scales};
        const apr_packing packing = {.scales = &scale, .scale_dtype = rows[i].scales, .level = rows[i].level};
        const apr_tensor t = {.name = "weight",
                              .dtype = rows[i].tensor,
                              .scale = rows[i].has_scales ? &scale : NULL,
                              .packing = rows[i].is_packed ? &packing : NULL};
        if (apr_reference_type(&model, &t) != rows[i].library || apr_is_read_as_products(&model, &t) != rows[i].is_products)
            fail_msg("row %zu", i);
    }
}

static void rounding_is_to_the_nearest_and_once(void **state)
{
    (void)state;
    assert_true(apr_round_as(APR_BF16, 1.00390625f) == 1.0f); /* a tie goes to the even one */
    assert_true(apr_round_as(APR_BF16, 1.01171875f) == 1.015625f);
    assert_true(apr_round_as(APR_F16, 1.00048828125f) == 1.0f);
    assert_true(apr_round_as(APR_F32, 1.00048828125f) == 1.00048828125f);
    assert_true(apr_round_as(APR_DTYPE_COUNT, 0.1f) == 0.1f);
}

int unit_library_type(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_has_the_type_of_its_table),
        cmocka_unit_test(rounding_is_to_the_nearest_and_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
