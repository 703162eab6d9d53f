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
    static const char *const families[] = {"llama", "gpt_oss", "qwen3_5", "gemma2", "deepseek_v3", "nemotron_h"};
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
    lacking = apr_host_backend;
    lacking.ops[APR_OP_DELTA] = NULL; /* of some of its layers only */
    assert_int_equal(ability_of("qwen3_5_moe", &lacking), APR_ABLE_PLAN);
    assert_int_equal(ability_of("gpt_oss", &lacking), APR_ABLE_RUN);
}

static void what_has_no_program_is_neither(void **state)
{
    (void)state;
    apr_family stranger = *apr_family_find("llama");
    stranger.name = "stranger";
    assert_int_equal(apr_family_ability(&stranger, &apr_host_backend), APR_ABLE_NOTHING);
}

/* The smallest model of a family that has a program is no model that the emitter refuses. */
static void every_family_with_a_program_emits_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++)
        assert_int_equal(apr_family_ability(apr_families[i], &apr_host_backend) != APR_ABLE_NOTHING,
                         apr_family_program_of(apr_families[i]) != NULL);
}

/* Where `name` stands in "a, b; to plan also c" as a word of its own; NULL: nowhere. */
static const char *place_of(const char *name, const char *list)
{
    const size_t n = strlen(name);
    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && strchr(",;", at[n]) != NULL) return at;
    return NULL;
}

static void a_refusal_names_the_families_that_can_be_had(void **state)
{
    (void)state;
    apr_arena arena = {0};
    apr_program program;
    apr_error err = {0}, other = {0};
    const apr_hparams h = {.architecture = "nobody_knows"}, unstated = {.architecture = ""};
    const char *const list = apr_program_families(&arena);

    assert_non_null(list);
    const char *const planned = strstr(list, "; to plan also ");
    for (size_t i = 0; i < apr_n_families; i++) {
        const char *const place = place_of(apr_families[i]->name, list);
        const apr_ability ability = apr_family_ability(apr_families[i], &apr_host_backend);
        if (ability == APR_ABLE_RUN) assert_true(place != NULL && (planned == NULL || place < planned));
        if (ability == APR_ABLE_PLAN) assert_true(place != NULL && planned != NULL && place > planned);
    }
    assert_int_equal(apr_program_emit(&program, &h, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "architecture 'nobody_knows' cannot be run or planned; these can: "));
    assert_non_null(strstr(err.text, list));
    assert_int_equal(apr_program_emit(&program, &unstated, &other), APR_E_UNSUPPORTED);
    assert_non_null(strstr(other.text, "(not stated)"));
    apr_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_all_its_operations_runs),
        cmocka_unit_test(what_a_backend_lacks_is_only_planned),
        cmocka_unit_test(what_has_no_program_is_neither),
        cmocka_unit_test(every_family_with_a_program_emits_it),
        cmocka_unit_test(a_refusal_names_the_families_that_can_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
