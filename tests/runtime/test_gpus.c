/* runtime/plan/gpus.h: the formula of a context against every measurement there is, and sane entries. */
#include "runtime/plan/gpus.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void the_context_formula_meets_every_measurement_within_a_tenth(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t stack_bytes;
        double measured_mib;
    } cases[] = {
        {"h200", 1024, 527}, {"h200", 256, 329}, {"rtxpro6000", 1024, 555}, {"rtx6000ada", 1024, 426}, {"rtx4060ti", 1024, 107},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_gpu *const gpu = apr_gpu_find(cases[i].name);
        assert_non_null(gpu);
        const double mib = (double)apr_gpu_context_bytes(gpu, cases[i].stack_bytes) / 0x1p20;
        if (fabs(mib / cases[i].measured_mib - 1.0) > 0.1)
            fail_msg("%s: %.0f MiB, measured %.0f", cases[i].name, mib, cases[i].measured_mib);
    }
}

static void names_are_found_however_they_are_written(void **state)
{
    (void)state;
    static const char *const same[] = {"rtx4090", "RTX 4090", "rtx-4090", "RTX_4090"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) assert_ptr_equal(apr_gpu_find(same[i]), apr_gpu_find("rtx4090"));
    assert_non_null(apr_gpu_find("A100 80G"));
    assert_ptr_not_equal(apr_gpu_find("a100-80g"), apr_gpu_find("a100-40g"));
    assert_null(apr_gpu_find("rtx409"));
    assert_null(apr_gpu_find("rtx40900"));
    assert_null(apr_gpu_find(""));
    assert_null(apr_gpu_find("v100")); /* below compute capability 7.5 */
}

static void every_entry_is_complete_and_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const apr_gpu *const gpu = &apr_gpus[i];
        assert_ptr_equal(apr_gpu_find(gpu->name), gpu);
        assert_in_range(gpu->vram_mib, 4 << 10, 512 << 10);
        assert_in_range(gpu->n_sms, 20, 200);
        assert_true(gpu->threads_per_sm == 1024 || gpu->threads_per_sm == 1536 || gpu->threads_per_sm == 2048);
        assert_true(gpu->major * 10 + gpu->minor >= 75);
        assert_in_range(gpu->bandwidth_gbs, 200, 10000);
        assert_int_equal(apr_gpu_cublas_workspace_bytes(gpu), (gpu->major >= 9 ? 32 : 4) << 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_context_formula_meets_every_measurement_within_a_tenth),
        cmocka_unit_test(names_are_found_however_they_are_written),
        cmocka_unit_test(every_entry_is_complete_and_unique),
    };
    return cmocka_run_group_tests_name("gpus", tests, NULL, NULL);
}
