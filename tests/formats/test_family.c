/* test_family.c - the cards of the families: each is whole, no two claim the same, and names go both ways. */
#include "formats/model/family.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void no_two_families_claim_a_model_type_or_a_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family *const family = apr_families[i];
        for (size_t t = 0; t < APR_MAX_FAMILY_TYPES && family->types[t].name != NULL; t++)
            assert_ptr_equal(apr_family_find(family->types[t].name), family); /* the first that has it */
        for (size_t j = 0; j < i; j++) assert_string_not_equal(apr_families[j]->name, family->name);
    }
}

static void a_family_bears_the_name_of_one_of_its_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family *const family = apr_families[i];
        bool found = false;
        for (size_t t = 0; t < APR_MAX_FAMILY_TYPES && family->types[t].name != NULL; t++)
            found |= strncmp(family->types[t].name, family->name, strlen(family->name)) == 0;
        assert_true(found);
    }
}

/* A card has its parts, each with what depends on it. */
static void every_card_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family *const f = apr_families[i];
        assert_non_null(f->name);
        assert_non_null(f->types[0].name);
        if (f->config != NULL) {
            assert_non_null(f->config->activation);
            for (size_t t = 0; t < APR_MAX_FAMILY_TYPES && f->types[t].name != NULL; t++) assert_non_null(f->types[t].hf_class);
        }
        if (f->translates) assert_non_null(f->ggml);
        if (f->translates) assert_true(f->n_tensors > 0);
        if (f->program.kind != APR_PROGRAM_NONE) assert_non_null(f->config);
        assert_true(f->program.kind < APR_PROGRAM_COUNT);
        assert_int_equal(f->n_tensors > 0, f->tensors != NULL);
    }
}

/* " a b ": words are found between spaces. */
static void assert_is_list(const char *list)
{
    if (list == NULL) return;
    assert_true(list[0] == ' ' && list[strlen(list) - 1] == ' ' && strlen(list) > 2);
    assert_null(strstr(list, "  "));
}

static void what_a_family_computes_or_refuses_is_a_list_of_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++)
        if (apr_families[i]->config != NULL) {
            assert_is_list(apr_families[i]->config->computes);
            assert_is_list(apr_families[i]->config->refuses);
        }
    assert_true(apr_has_word(" a bc ", "bc"));
    assert_false(apr_has_word(" a bc ", "b"));
    assert_false(apr_has_word(" a bc ", "a bc"));
    assert_false(apr_has_word(" a bc ", ""));
    assert_false(apr_has_word(NULL, "a"));
}

static void own_spellings_are_of_fields_that_there_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++)
        for (size_t s = 0; apr_families[i]->config != NULL && s < APR_MAX_SPELLINGS; s++) {
            const apr_spelling *const own = &apr_families[i]->config->spellings[s];
            size_t n_found = 0;
            if (own->field == NULL) break;
            for (size_t k = 0; k < apr_n_hparam_fields; k++)
                if (strcmp(apr_hparam_fields[k].name, own->field) == 0) {
                    assert_string_equal(apr_family_hf_key(apr_families[i]->config, &apr_hparam_fields[k]), own->hf_key);
                    assert_string_not_equal(apr_hparam_fields[k].hf_key, own->hf_key);
                    n_found++;
                }
            assert_int_equal(n_found, 1);
        }
}

static void no_tensor_has_two_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family *const f = apr_families[i];
        for (size_t a = 0; a < f->n_tensors; a++) {
            const apr_tensor_rule *const x = &f->tensors[a];
            assert_true(x->hf != NULL || x->ggml != NULL);
            assert_true(x->purpose < APR_FOR_COUNT);
            for (size_t b = 0; b < a; b++) {
                const apr_tensor_rule *const y = &f->tensors[b];
                if (x->hf != NULL && y->hf != NULL) assert_string_not_equal(x->hf, y->hf);
                if (x->ggml != NULL && y->ggml != NULL) assert_string_not_equal(x->ggml, y->ggml);
            }
        }
    }
}

/* `pattern` with its holes filled: layer 17, expert 5. */
static const char *example(const char *pattern, char text[128])
{
    char *out = text;
    for (; *pattern != '\0'; pattern++)
        if (pattern[0] == '{') {
            memcpy(out, "17", 2);
            out += 2;
            pattern++;
        } else *out++ = *pattern == '*' ? '5' : *pattern;
    *out = '\0';
    return text;
}

/* Whatever is called so is found under both its names, and under no other rule's. */
static void a_tensor_is_found_by_either_name(void **state)
{
    (void)state;
    char name[128];

    for (size_t i = 0; i < apr_n_families; i++)
        for (size_t r = 0; r < apr_families[i]->n_tensors; r++) {
            const apr_tensor_rule *const rule = &apr_families[i]->tensors[r];
            if (rule->hf != NULL) assert_ptr_equal(apr_family_rule(apr_families[i], example(rule->hf, name)), rule);
            if (rule->ggml != NULL) assert_ptr_equal(apr_family_rule(apr_families[i], example(rule->ggml, name)), rule);
        }
}

static void names_and_orders_go_both_ways(void **state)
{
    (void)state;
    const apr_hparams h = {.num_heads = 4, .num_kv_heads = 2};
    apr_arena arena = {0};
    char hf_name[128], ggml_name[128];
    size_t n_families = 0;

    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family *const f = apr_families[i];
        n_families += f->translates;
        for (size_t r = 0; f->translates && r < f->n_tensors; r++) {
            const apr_tensor_rule *const rule = &f->tensors[r];
            const char *there, *back;
            apr_step step, inverse;
            if (rule->hf == NULL || rule->ggml == NULL) continue;
            assert_null(strchr(rule->hf, '*')); /* many tensors to one: no name alone says that */
            assert_true(apr_family_translate(f, APR_DIALECT_HF, example(rule->hf, hf_name), &h, &arena, &there, &step));
            assert_string_equal(there, example(rule->ggml, ggml_name));
            assert_true(apr_family_translate(f, APR_DIALECT_GGML, there, &h, &arena, &back, &inverse));
            assert_string_equal(back, hf_name);
            assert_int_equal(apr_step_inverse(step).kind, inverse.kind);
            assert_int_equal(step.kind != APR_STEP_NONE, rule->rotary_pairs != APR_HEADS_NONE);
            if (rule->rotary_pairs != APR_HEADS_NONE) assert_true(f->gguf.rotates_pairs);
        }
    }
    assert_true(n_families >= 4);
    apr_arena_close(&arena);
}

static void numbers_in_names_are_written_one_way(void **state)
{
    (void)state;
    const apr_family *const f = apr_family_find("qwen3_moe");
    assert_non_null(apr_family_rule(f, "model.layers.0.mlp.experts.127.up_proj.weight"));
    assert_null(apr_family_rule(f, "model.layers.0.mlp.experts..up_proj.weight"));
    assert_null(apr_family_rule(f, "model.layers.0.mlp.experts.007.up_proj.weight"));
    assert_null(apr_family_rule(f, "model.layers.00.mlp.experts.7.up_proj.weight"));
    assert_null(apr_family_rule(f, "model.layers.1234567.mlp.experts.7.up_proj.weight"));
    assert_null(apr_family_rule(f, "model.layers.0.mlp.experts.7.up_proj.weight.more"));
    assert_null(apr_family_rule(f, "model.layers.{}.mlp.gate.weight")); /* a name, not a rule */
    assert_null(apr_family_rule(f, "model.layers.0.mlp.experts.*.up_proj.weight"));
    assert_null(apr_family_rule(f, ""));

    char longest[1024];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t n = 240; n < sizeof longest; n++) assert_null(apr_family_rule(f, longest + n - 240));
    static const char tail[] = ".1234";
    for (size_t n = 248; n <= 258; n++) { /* whatever stands at the end of the room for a name */
        memset(longest, 'x', n);
        memcpy(longest + n, tail, sizeof tail);
        assert_null(apr_family_rule(f, longest));
    }
}

static void a_text_model_in_a_larger_one_is_known_under_its_prefix(void **state)
{
    (void)state;
    const apr_family *const f = apr_family_find("qwen3_5");
    const apr_tensor_rule *const rule = apr_family_rule(f, "model.language_model.layers.3.linear_attn.in_proj_qkv.weight");
    assert_non_null(rule);
    assert_ptr_equal(rule, apr_family_rule(f, "model.layers.3.linear_attn.in_proj_qkv.weight"));
    assert_ptr_equal(rule, apr_family_rule(f, "blk.3.attn_qkv.weight"));
    assert_null(apr_family_rule(f, "model.visual.layers.3.linear_attn.in_proj_qkv.weight"));
    assert_null(apr_family_rule(apr_family_find("qwen3"), "model.language_model.norm.weight"));
}

static void ggml_s_name_stands_for_the_first_family_that_has_it(void **state)
{
    (void)state;
    static const struct {
        const char *hf, *ggml, *back;
    } rows[] = {{"llama", "llama", "llama"},
                {"mistral", "llama", "llama"},
                {"gpt_oss", "gpt-oss", "gpt_oss"},
                {"qwen3_5", "qwen35", "qwen3_5_text"},
                {"qwen3_5_moe_text", "qwen35moe", "qwen3_5_moe_text"},
                {"gemma3_text", "gemma3", "gemma3_text"},
                {"mixtral", "llama", "llama"}, /* a llama with experts: formats/gguf tells them apart */
                {"nobody_knows", "nobody_knows", "nobody_knows"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(apr_architecture_to_ggml(rows[i].hf), rows[i].ggml);
        assert_string_equal(apr_architecture_from_ggml(rows[i].ggml), rows[i].back);
    }
}

static void what_nobody_knows_is_not_there(void **state)
{
    (void)state;
    static const char *const unknown[] = {"nobody_knows", "", "Llama", "qwen3_5_", NULL};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_null(apr_family_find(unknown[i]));
        assert_null(apr_family_of_ggml(unknown[i]));
        assert_null(apr_family_translated(unknown[i]));
        assert_null(apr_family_config_of(unknown[i]));
        assert_null(apr_family_type_of(unknown[i]));
    }
    assert_non_null(apr_family_find("gpt_oss"));
    assert_null(apr_family_translated("gpt_oss")); /* its steps are not written yet */
    assert_int_equal(apr_family_gguf_of(NULL)->full_every, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_families_claim_a_model_type_or_a_name),
        cmocka_unit_test(a_family_bears_the_name_of_one_of_its_types),
        cmocka_unit_test(every_card_is_whole),
        cmocka_unit_test(what_a_family_computes_or_refuses_is_a_list_of_words),
        cmocka_unit_test(own_spellings_are_of_fields_that_there_are),
        cmocka_unit_test(no_tensor_has_two_rules),
        cmocka_unit_test(a_tensor_is_found_by_either_name),
        cmocka_unit_test(names_and_orders_go_both_ways),
        cmocka_unit_test(numbers_in_names_are_written_one_way),
        cmocka_unit_test(a_text_model_in_a_larger_one_is_known_under_its_prefix),
        cmocka_unit_test(ggml_s_name_stands_for_the_first_family_that_has_it),
        cmocka_unit_test(what_nobody_knows_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
