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
    static const char *const as_said[][2] = {{"4090", "rtx4090"},        {"RTX-4090", "rtx4090"},
                                             {"3080 ti", "rtx3080ti"},   {"5060ti", "rtx5060ti"},
                                             {"6000 ada", "rtx6000ada"}, {"pro 6000", "rtxpro6000"},
                                             {"2060", "rtx2060"},        {"RTX 3090 24GB", "rtx3090"},
                                             {"4090 24g", "rtx4090"},    {"GeForce 4070 Super", "rtx4070super"}};
    for (size_t i = 0; i < sizeof as_said / sizeof *as_said; i++)
        assert_ptr_equal(apr_gpu_find(as_said[i][0]), apr_gpu_find(as_said[i][1]));
    char several[128];
    assert_null(apr_gpu_find("a100"));
    assert_string_equal(apr_gpu_several("A100", several, sizeof several), "a100-40g");
    assert_string_equal(several, "a100-40g or a100-80g");
    assert_null(apr_gpu_several("rtx4090x", several, sizeof several));
    assert_null(apr_gpu_find("rtx40900"));
    assert_null(apr_gpu_find(""));
    assert_null(apr_gpu_find("v100")); /* below compute capability 7.5 */
}

static void nvidia_smi_s_spelling_is_understood(void **state)
{
    static const struct {
        const char *text, *name;
    } cases[] = {{"NVIDIA GeForce RTX 3060", "rtx3060"},
                 {"NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper"},
                 {"NVIDIA GeForce RTX 4090 Laptop GPU", "rtx4090laptop"},
                 {"NVIDIA RTX A6000", "a6000"},
                 {"NVIDIA RTX 6000 Ada Generation", "rtx6000ada"},
                 {"NVIDIA A100-SXM4-80GB", "a100-80g"},
                 {"NVIDIA A100 80GB PCIe", "a100-80g"},
                 {"NVIDIA A100-PCIE-40GB", "a100-40g"},
                 {"NVIDIA H100 80GB HBM3", "h100"},
                 {"NVIDIA H100 PCIe", "h100-pcie"},
                 {"NVIDIA H100 NVL", "h100-nvl"},
                 {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000"},
                 {"Tesla T4", "t4"},
                 {"NVIDIA GB10", "gb10"},
                 {"NVIDIA Thor", "thor"},
                 {"Orin (nvgpu)", "orin"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_gpu *const gpu = apr_gpu_find(cases[i].text);
        if (gpu == NULL || strcmp(gpu->name, cases[i].name) != 0)
            fail_msg("'%s' is %s", cases[i].text, gpu != NULL ? gpu->name : "not known");
    }
}

static void slices_are_shares_and_old_cards_are_refused(void **state)
{
    static const char *const old[] = {"v100", "Tesla V100-SXM2-16GB", "NVIDIA GeForce GTX 1080 Ti", "Tesla P40", "Tesla K80"};
    static const char *const slices[] = {"h100:1g.10gb", "H100 1g.10gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"};
    static const char *const unknown[] = {"rtx4090 1g.10gb", "h100 8g.10gb", "h100 1g.100gb", "h100 1g.", "1g.10gb", "rtx9999"};
    apr_gpu gpu;
    char label[APR_GPU_LABEL];
    apr_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
        if (apr_gpu_named(slices[i], &gpu, label, &err) != APR_OK) fail_msg("%s: %s", slices[i], err.text);
        assert_string_equal(gpu.label, "H100 80 GB 1g.10gb");
        assert_true(gpu.vram_mib == 9728 && gpu.n_sms == 16 && gpu.bandwidth_gbs < 3350 / 8 && gpu.major == 9);
    }
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        assert_int_equal(apr_gpu_named(old[i], &gpu, label, &err), APR_E_NO);
        assert_non_null(strstr(err.text, "7.5 (Turing) is the oldest"));
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (apr_gpu_named(unknown[i], &gpu, label, &err) != APR_E_USAGE) fail_msg("'%s' was understood", unknown[i]);
}

static void every_entry_is_complete_and_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const apr_gpu *const gpu = &apr_gpus[i];
        assert_ptr_equal(apr_gpu_find(gpu->name), gpu);
        assert_in_range(gpu->vram_mib, 4 << 10, 512 << 10);
        assert_in_range(gpu->n_sms, 8, 200);
        assert_true(gpu->threads_per_sm == 1024 || gpu->threads_per_sm == 1536 || gpu->threads_per_sm == 2048);
        assert_true(gpu->major * 10 + gpu->minor >= 75);
        assert_in_range(gpu->bandwidth_gbs, 100, 10000);
        assert_int_equal(apr_gpu_cublas_workspace_bytes(gpu), (gpu->major >= 9 ? 32 : 4) << 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_context_formula_meets_every_measurement_within_a_tenth),
        cmocka_unit_test(names_are_found_however_they_are_written),
        cmocka_unit_test(every_entry_is_complete_and_unique),
        cmocka_unit_test(nvidia_smi_s_spelling_is_understood),
        cmocka_unit_test(slices_are_shares_and_old_cards_are_refused),
    };
    return cmocka_run_group_tests_name("gpus", tests, NULL, NULL);
}
