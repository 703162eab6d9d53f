/* test_role.c - a tensor's role: from its family's spec, or from the ending of its name where there is no spec. */
#include "quant/role.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static apr_tensor_role of(const char *model_type, const char *name, int rank)
{
    const apr_tensor tensor = {.name = name, .rank = rank};
    return apr_find_tensor_role(apr_family_find(model_type), &tensor).role;
}

static void check_rule(const apr_family *family, const apr_tensor_rule *rule)
{
    const char *const names[] = {rule->hf, rule->ggml};
    for (int n = 0; n < 2; n++) {
        if (names[n] == NULL) continue;
        const apr_tensor_role suffix = apr_tensor_role_of_suffix(names[n]);
        if (suffix != rule->role && suffix != APR_TENSOR_ROLE_OTHER && rule->role != APR_TENSOR_ROLE_MATRIX)
            fail_msg("%s: '%s' is %s by its card, %s by its ending", family->name, names[n], apr_tensor_role_name(rule->role),
                     apr_tensor_role_name(suffix));
    }
}

/* Where the ending of a name gives a role, no spec gives another, except that it is a matrix like any other. */
static void specs_and_name_endings_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family *const f = apr_families[i];
        for (size_t r = 0; r < f->n_tensors; r++) check_rule(f, &f->tensors[r]);
        for (size_t s = 0; s < APR_MAX_SETS && f->sets[s] != NULL; s++)
            for (size_t r = 0; r < f->sets[s]->n_rules; r++) check_rule(f, &f->sets[s]->rules[r]);
    }
}

static void a_spec_finds_more_roles_than_name_endings(void **state)
{
    (void)state;
    assert_int_equal(of("qwen3_5", "blk.0.ssm_a", 2), APR_TENSOR_ROLE_SMALL);
    assert_int_equal(of("nobody_knows", "blk.0.ssm_a", 2), APR_TENSOR_ROLE_OTHER);
    assert_int_equal(of("qwen3_5", "model.language_model.layers.0.linear_attn.A_log", 2), APR_TENSOR_ROLE_SMALL);
}

static void name_endings_serve_families_without_a_spec_and_names_without_a_rule(void **state)
{
    (void)state;
    static const char *const families[] = {"nobody_knows", "llama"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(of(families[i], "transformer.h.layers.3.attn.q_proj.weight", 2), APR_TENSOR_ROLE_ATTN_Q);
        assert_int_equal(of(families[i], "encoder.layer.3.mlp.down_proj", 2), APR_TENSOR_ROLE_FFN_DOWN);
        assert_int_equal(of(families[i], "output.weight", 2), APR_TENSOR_ROLE_HEAD);
        assert_int_equal(of(families[i], "blk.0.attention.output.weight", 2), APR_TENSOR_ROLE_OTHER); /* a head is called output, no more */
        assert_int_equal(of(families[i], "something.else", 2), APR_TENSOR_ROLE_OTHER);
    }
}

static void vectors_are_never_quantized_whatever_they_are_called(void **state)
{
    (void)state;
    assert_int_equal(of("llama", "model.layers.0.self_attn.q_proj.weight", 1), APR_TENSOR_ROLE_SMALL);
    assert_int_equal(of("nobody_knows", "something.else", 1), APR_TENSOR_ROLE_SMALL);
}

static void the_layer_is_the_number_in_the_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t layer;
    } rows[] = {{"model.layers.17.mlp.up_proj.weight", 17}, {"blk.3.ffn_up.weight", 3}, {"output.weight", -1}, {"blk.x.ffn_up.weight", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const apr_tensor tensor = {.name = rows[i].name, .rank = 2};
        assert_int_equal(apr_find_tensor_role(apr_family_find("llama"), &tensor).layer, rows[i].layer);
        assert_int_equal(apr_find_tensor_role(NULL, &tensor).layer, rows[i].layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs_and_name_endings_agree),
        cmocka_unit_test(a_spec_finds_more_roles_than_name_endings),
        cmocka_unit_test(name_endings_serve_families_without_a_spec_and_names_without_a_rule),
        cmocka_unit_test(vectors_are_never_quantized_whatever_they_are_called),
        cmocka_unit_test(the_layer_is_the_number_in_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
