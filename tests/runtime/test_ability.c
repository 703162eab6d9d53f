/* runtime/program/ability.h: what can be done with each family is what its program needs and the backend has. */
#include "runtime/program/ability.h"
#include "runtime/program/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static apr_ability ability_of(const char *model_type, const apr_backend *backend)
{
    const apr_family *const family = apr_family_find(model_type);
    assert_non_null(family);
    return apr_family_ability(family, backend);
}

static void what_has_all_its_operations_runs(void **state)
{
    (void)state;
    static const char *const families[] = {"llama",  "mistral",    "qwen3_moe",   "gpt_oss",      "qwen3_5",
                                           "gemma4", "nemotron_h", "deepseek_v3", "deepseek_v32", "glm_moe_dsa"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        assert_int_equal(ability_of(families[i], &apr_ref_backend), APR_ABLE_RUN);
        assert_int_equal(ability_of(families[i], &apr_host_backend), APR_ABLE_RUN);
    }
}

static void what_a_backend_lacks_is_only_planned(void **state)
{
    (void)state;
    apr_backend lacking = apr_host_backend;
    lacking.ops[APR_OP_ROPE] = NULL;
    assert_int_equal(ability_of("llama", &lacking), APR_ABLE_PLAN);
    assert_int_equal(ability_of("nemotron_h", &lacking), APR_ABLE_RUN);
    lacking.ops[APR_OP_SSD] = NULL;
    assert_int_equal(ability_of("nemotron_h", &lacking), APR_ABLE_PLAN);
    assert_int_equal(ability_of("granitemoehybrid", &lacking), APR_ABLE_PLAN);
    lacking = apr_host_backend;
    lacking.ops[APR_OP_INDEX] = NULL;
    assert_int_equal(ability_of("deepseek_v32", &lacking), APR_ABLE_PLAN);
    assert_int_equal(ability_of("deepseek_v3", &lacking), APR_ABLE_RUN);
}

static void what_has_no_program_is_neither(void **state)
{
    (void)state;
    static const apr_family other = {.name = "nobody_knows", .types = {{"nobody_knows", "NobodyForCausalLM"}}};
    assert_int_equal(apr_family_ability(&other, &apr_host_backend), APR_ABLE_NOTHING);
}

/* The smallest model of a family is not refused by the family's own architecture. */
static void every_family_with_a_program_emits_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++)
        assert_int_equal(apr_family_ability(apr_families[i], &apr_host_backend) != APR_ABLE_NOTHING,
                         apr_family_program_of(apr_families[i]) != NULL);
}

static void a_refusal_says_where_the_families_are_listed(void **state)
{
    (void)state;
    apr_program program;
    apr_error err = {0}, other = {0};
    const apr_hparams h = {.architecture = "nobody_knows"}, unstated = {.architecture = ""};

    assert_int_equal(apr_program_emit(&program, &h, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "architecture 'nobody_knows' is not one of the"));
    assert_non_null(strstr(err.text, "'aprconv families'"));
    assert_int_equal(apr_program_emit(&program, &unstated, &other), APR_E_UNSUPPORTED);
    assert_non_null(strstr(other.text, "(not stated)"));

    const apr_hparams bloom = {.architecture = "bloom"};
    apr_error lacking = {0};
    assert_int_equal(apr_program_emit(&program, &bloom, &lacking), APR_E_UNSUPPORTED);
    assert_non_null(strstr(lacking.text, "'bloom' needs "));
    for (size_t i = 0; i < apr_n_families; i++) /* what has a program lacks nothing */
        if (apr_family_program_of(apr_families[i]) != NULL) assert_null(apr_family_missing_feature(apr_families[i]->types[0].name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_all_its_operations_runs),
        cmocka_unit_test(what_a_backend_lacks_is_only_planned),
        cmocka_unit_test(what_has_no_program_is_neither),
        cmocka_unit_test(every_family_with_a_program_emits_it),
        cmocka_unit_test(a_refusal_says_where_the_families_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
