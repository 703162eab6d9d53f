/* test_family.c - the specs of the families: each is complete, no two claim the same, and names are found in both naming schemes. */
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/hf_config.h"
#include "formats/shape/tensor_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

/* A spec has its parts, each with what depends on it. */
static void every_spec_is_complete(void **state)
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
        if (f->translates) assert_true(f->n_tensors > 0 || f->sets[0] != NULL);
        assert_int_equal(f->n_tensors > 0, f->tensors != NULL);
        assert_int_equal(f->n_forms > 0, f->forms != NULL);
    }
}

/* A list has names, each of them once, without blanks. */
static void assert_is_list(const char *const *list)
{
    if (list == NULL) return;
    assert_non_null(list[0]);
    for (; *list != NULL; list++) {
        assert_true(**list != '\0' && strchr(*list, ' ') == NULL);
        assert_false(apr_is_any_of(*list, list + 1));
    }
}

static void what_a_family_computes_or_refuses_is_a_list_of_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++)
        if (apr_families[i]->config != NULL) {
            const apr_family_config *const config = apr_families[i]->config;
            assert_is_list(config->computes);
            assert_is_list(config->refuses);
            assert_is_list(config->requires);
            assert_is_list(config->layer_types);
            for (size_t k = 0; k < APR_MAX_ACCEPTED && config->accepts[k].hf_key != NULL; k++) {
                assert_non_null(config->accepts[k].words);
                assert_is_list(config->accepts[k].words);
            }
        }
    assert_true(apr_is_any_of("bc", APR_NAMES("a", "bc")));
    assert_false(apr_is_any_of("b", APR_NAMES("a", "bc")));
    assert_false(apr_is_any_of("a", NULL));
    assert_true(apr_has_word(" a bc ", "bc"));
    assert_false(apr_has_word(" a bc ", "b"));
    assert_false(apr_has_word(" a bc ", "a bc"));
    assert_false(apr_has_word(" a bc ", ""));
    assert_true(apr_has_word("a bc", "bc"));
    assert_false(apr_has_word(NULL, "a"));
}

static void the_first_spelling_of_a_field_is_written_and_is_its_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family_config *const config = apr_families[i]->config;
        for (size_t s = 0; config != NULL && s < APR_MAX_SPELLINGS && config->spellings[s].field != APR_NO_FIELD; s++) {
            const apr_spelling *const own = &config->spellings[s];
            bool is_first = true;
            for (size_t k = 0; k < s; k++) is_first &= config->spellings[k].field != own->field;
            if (is_first) assert_string_equal(apr_family_hf_key(config, own->field), own->hf_key);
            assert_true(own->hf_key[0] == '\0' || !apr_family_key_is_taken(config, own->field, own->hf_key) ||
                        strcmp(own->hf_key, "intermediate_size") == 0 || /* llama4: of experts and of those that they share */
                        strcmp(own->hf_key, "use_bias") == 0);           /* ernie4_5: of attention and of the feed-forward */
        }
    }
}

static void defaults_are_numbers_and_stated_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family_config *const config = apr_families[i]->config;
        for (size_t k = 0; config != NULL && k < apr_n_hparam_fields; k++) {
            const double value = apr_hparam_number(&config->defaults, &apr_hparam_fields[k]);
            assert_true(value == 0 || apr_family_default(config, &apr_hparam_fields[k]) == value); /* stated once */
        }
        for (size_t k = 0; config != NULL && k < apr_n_hflag_fields; k++)
            assert_false(apr_hflag_get(&config->defaults, &apr_hflag_fields[k])); /* flags have their own sets */
        /* a flag that always holds needs no default, and no tensors that show it */
        if (config != NULL) assert_int_equal(config->flags_always & (config->flags_on | config->flags_shown), 0);
    }
}

/* A key that a family lists has a name in its architecture, and a rule that writes it. */
static void every_gguf_key_that_a_family_lists_is_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        apr_hparams h = {.architecture = apr_families[i]->types[0].name};
        apr_arena arena = {0};
        apr_kv_list kv = {.arena = &arena};
        apr_error err = {0};

        for (size_t k = 0; k < apr_n_hparam_fields; k++) {
            if (apr_hparam_fields[k].is_int) *apr_hparam_int(&h, &apr_hparam_fields[k]) = 1;
            else *apr_hparam_real(&h, &apr_hparam_fields[k]) = 1;
        }
        for (size_t k = 0; k < apr_n_hflag_fields; k++) *apr_hflag(&h, &apr_hflag_fields[k]) = true;
        if (apr_gguf_standard_keys(&h, false, NULL, 0, &kv, &err) != APR_OK) fail_msg("%s: %s", h.architecture, err.text);
        for (size_t k = 0; k < kv.n_items; k++) assert_int_not_equal(kv.items[k].key.text[kv.items[k].key.n_bytes - 1], '.');
        apr_arena_close(&arena);
    }
}

/* A spec's rows: its own, then those of its sets. */
typedef struct card_rows {
    const apr_tensor_rule *rules[128];
    const apr_tensor_form *forms[64];
    size_t n_rules, n_forms;
} card_rows;

static void add_rows(card_rows *all, const apr_tensor_rule *rules, size_t n_rules, const apr_tensor_form *forms, size_t n_forms)
{
    for (size_t i = 0; i < n_rules; i++) all->rules[all->n_rules++] = &rules[i];
    for (size_t i = 0; i < n_forms; i++) all->forms[all->n_forms++] = &forms[i];
}

static card_rows rows_of(const apr_family *f)
{
    card_rows all = {.n_rules = 0};
    add_rows(&all, f->tensors, f->n_tensors, f->forms, f->n_forms);
    for (size_t i = 0; i < APR_MAX_SETS && f->sets[i] != NULL; i++)
        add_rows(&all, f->sets[i]->rules, f->sets[i]->n_rules, f->sets[i]->forms, f->sets[i]->n_forms);
    return all;
}

/* Which name a row shadows would depend on the order of sets; a rule may have two names in ggml only where they exclude each other. */
static void no_two_rules_of_a_spec_claim_a_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const card_rows all = rows_of(apr_families[i]);
        for (size_t a = 0; a < all.n_rules; a++) {
            const apr_tensor_rule *const x = all.rules[a];
            assert_non_null(x->hf);
            assert_true(x->role < APR_TENSOR_ROLE_COUNT);
            for (size_t b = 0; b < a; b++) {
                const apr_tensor_rule *const y = all.rules[b];
                const bool is_hidden = strcmp(x->hf, y->hf) == 0 || b < apr_families[i]->n_tensors; /* own rows come before those of sets */
                if (a < apr_families[i]->n_tensors && x->ggml != NULL && y->ggml != NULL) assert_string_not_equal(x->ggml, y->ggml);
                if (strcmp(x->hf, y->hf) == 0 && x->when != APR_ALWAYS) assert_int_not_equal(x->when, y->when);
                if (!is_hidden && x->ggml != NULL && y->ggml != NULL && strcmp(x->ggml, y->ggml) == 0)
                    fail_msg("%s: '%s' is both '%s' and '%s'", apr_families[i]->name, x->ggml, x->hf, y->hf);
            }
        }
    }
}

/* Parts of forms are canonical, so they have rules; but those that both sides of a split are cut into and nothing has alone. */
static void what_a_form_holds_is_canonical(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const card_rows all = rows_of(apr_families[i]);
        for (size_t k = 0; k < all.n_forms; k++) {
            const apr_tensor_form *const form = all.forms[k];
            assert_non_null(form->parts[0].name);
            assert_int_equal(form->use == APR_FORM_WHOLE, apr_rule_of_pattern(apr_families[i], form->name) != NULL);
            assert_int_equal(strncmp(form->name, "blk.", 4) == 0, form->use != APR_FORM_WHOLE && form->naming == APR_NAMING_GGML);
            for (int p = 0; p < APR_FORM_PARTS && form->parts[p].name != NULL; p++) {
                size_t n_holders = apr_rule_of_pattern(apr_families[i], form->parts[p].name) != NULL ? 2 : 0;
                for (size_t o = 0; o < all.n_forms; o++)
                    for (int q = 0; q < APR_FORM_PARTS && all.forms[o]->parts[q].name != NULL; q++)
                        n_holders += strcmp(all.forms[o]->parts[q].name, form->parts[p].name) == 0;
                assert_true(n_holders >= 2);
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

static void a_tensor_is_found_by_either_name(void **state)
{
    (void)state;
    char name[128];

    for (size_t i = 0; i < apr_n_families; i++) {
        const card_rows all = rows_of(apr_families[i]);
        for (size_t r = 0; r < all.n_rules; r++) {
            const apr_tensor_rule *const rule = all.rules[r];
            const apr_tensor_rule *const by_hf = apr_family_rule(apr_families[i], example(rule->hf, name));
            assert_string_equal(by_hf->hf, rule->hf);
            if (r >= apr_families[i]->n_tensors || rule->ggml == NULL) continue; /* own rows may hide shared ones */
            assert_ptr_equal(apr_family_rule(apr_families[i], example(rule->ggml, name)), rule);
        }
    }
}

/* What is written in either naming is read as what it was. */
static void what_holds_a_tensor_is_matched_as_its_holder(void **state)
{
    (void)state;
    char name[128], holder[128];
    size_t n_stacks = 0;

    for (size_t i = 0; i < apr_n_families; i++) {
        const card_rows all = rows_of(apr_families[i]);
        for (size_t r = 0; r < all.n_rules; r++)
            for (int to = APR_NAMING_HF; to <= APR_NAMING_GGML; to++) {
                const apr_tensor_rule *const rule = all.rules[r];
                apr_name_match there, back;
                if (!apr_match_target(apr_families[i], (apr_naming)to, example(rule->hf, name), false, true, &there)) continue;
                if (there.form != NULL && there.form->use == APR_FORM_WHOLE) continue;
                if (r >= apr_families[i]->n_tensors && there.rule != NULL) continue; /* may be hidden by an own row */
                const char *const pattern = there.rule != NULL ? there.rule->ggml : there.form->name;
                assert_true(apr_match_tensor(apr_families[i], (apr_naming)to, example(pattern, holder), &back));
                assert_ptr_equal(back.form, there.form);
                assert_ptr_equal(back.rule, there.rule);
                if (there.form != NULL) assert_string_equal(there.form->parts[there.part].name, rule->hf);
                assert_int_equal(there.expert, strchr(rule->hf, '*') != NULL ? 5 : -1);
                n_stacks += apr_is_stack_of(pattern, rule->hf);
            }
    }
    assert_true(n_stacks > 20);
}

static void rotary_rows_move_only_in_families_that_keep_pairs_together(void **state)
{
    (void)state;
    static const struct {
        const char *family, *name;
        apr_step_kind step;
        int heads;
    } cases[] = {{"llama", "model.layers.0.self_attn.q_proj.weight", APR_STEP_HALVES_TO_PAIRS, 4},
                 {"granite", "model.layers.0.self_attn.k_proj.bias", APR_STEP_HALVES_TO_PAIRS, 2},
                 {"qwen3", "model.layers.0.self_attn.q_proj.weight", APR_STEP_NONE, 0},
                 {"llama", "model.layers.0.self_attn.v_proj.weight", APR_STEP_NONE, 0},
                 {"gemma2", "model.layers.0.input_layernorm.weight", APR_STEP_ADD, 1},
                 {"llama", "model.layers.0.input_layernorm.weight", APR_STEP_NONE, 0}};
    const apr_hparams h = {.num_heads = 4, .num_kv_heads = 2};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_family *const family = apr_family_find(cases[i].family);
        apr_chain chain;
        assert_true(apr_rule_to_ggml(apr_family_rule(family, cases[i].name), family, &h, false, &chain));
        assert_int_equal(chain.steps[0].kind, cases[i].step);
        assert_int_equal(chain.steps[0].n[0], cases[i].heads);
    }
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
    for (size_t n = 248; n <= 258; n++) { /* the last bytes of the buffer for a name */
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
}

/* The prefix belongs to the larger model, whatever the family of its text part. */
static void every_family_is_known_under_every_published_prefix(void **state)
{
    static const char
        *const prefixes[] = {"model.language_model.", "language_model.model.", "model.text_model.", "thinker.model.", "llm.model.", ""},
               *const towers[] = {"model.visual.", "vision_tower.", "vision_model.model.", "model.audio_tower.", "mm_projector."};
    static const char norm[] = "layers.1.input_layernorm.weight";
    char name[96];

    (void)state;
    for (size_t f = 0; f < apr_n_families; f++) {
        const apr_tensor_rule *const rule = apr_family_rule(apr_families[f], "model.layers.1.input_layernorm.weight");
        if (rule == NULL) continue; /* nemotron_h's names are its own */
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
            snprintf(name, sizeof name, "%s%s", prefixes[i], norm);
            assert_ptr_equal(apr_family_rule(apr_families[f], name), rule);
        }
        for (size_t i = 0; i < sizeof towers / sizeof *towers; i++) {
            snprintf(name, sizeof name, "%s%s", towers[i], norm);
            assert_null(apr_family_rule(apr_families[f], name));
        }
        assert_ptr_equal(apr_family_rule(apr_families[f], "language_model.lm_head.weight"),
                         apr_family_rule(apr_families[f], "lm_head.weight"));
    }
}

static void an_indexer_s_tensors_are_known_by_both_names(void **state)
{
    (void)state;
    static const char *const families[] = {"deepseek_v32", "glm_moe_dsa"};
    static const struct {
        const char *hf, *ggml;
    } names[] = {{"wq_b.weight", "attn_q_b.weight"},
                 {"wk.weight", "attn_k.weight"},
                 {"k_norm.weight", "k_norm.weight"},
                 {"k_norm.bias", "k_norm.bias"},
                 {"weights_proj.weight", "proj.weight"}};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char hf[96], ggml[96];
            snprintf(hf, sizeof hf, "model.layers.7.self_attn.indexer.%s", names[i].hf);
            snprintf(ggml, sizeof ggml, "blk.7.indexer.%s", names[i].ggml);
            const apr_tensor_rule *const rule = apr_family_rule(apr_family_find(families[f]), hf);
            assert_non_null(rule);
            assert_ptr_equal(rule, apr_family_rule(apr_family_find(families[f]), ggml));
            assert_null(apr_family_rule(apr_family_find("deepseek_v3"), hf));
        }
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
                {"mixtral", "llama", "llama"}, /* a llama with experts: formats/gguf distinguishes them */
                {"deepseek_v32", "deepseek32", "deepseek_v32"},
                {"glm_moe_dsa", "glm-dsa", "glm_moe_dsa"},
                {"nobody_knows", "nobody_knows", "nobody_knows"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(apr_architecture_to_ggml(rows[i].hf), rows[i].ggml);
        assert_string_equal(apr_architecture_from_ggml(rows[i].ggml), rows[i].back);
    }
}

static void an_unknown_value_is_absent(void **state)
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
    assert_non_null(apr_family_translated("gpt_oss"));
    assert_int_equal(apr_family_gguf_of(NULL)->full_every, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_families_claim_a_model_type_or_a_name),
        cmocka_unit_test(a_family_bears_the_name_of_one_of_its_types),
        cmocka_unit_test(every_spec_is_complete),
        cmocka_unit_test(what_a_family_computes_or_refuses_is_a_list_of_names),
        cmocka_unit_test(the_first_spelling_of_a_field_is_written_and_is_its_own),
        cmocka_unit_test(no_two_rules_of_a_spec_claim_a_name),
        cmocka_unit_test(what_a_form_holds_is_canonical),
        cmocka_unit_test(defaults_are_numbers_and_stated_once),
        cmocka_unit_test(every_gguf_key_that_a_family_lists_is_written),
        cmocka_unit_test(a_tensor_is_found_by_either_name),
        cmocka_unit_test(what_holds_a_tensor_is_matched_as_its_holder),
        cmocka_unit_test(rotary_rows_move_only_in_families_that_keep_pairs_together),
        cmocka_unit_test(numbers_in_names_are_written_one_way),
        cmocka_unit_test(a_text_model_in_a_larger_one_is_known_under_its_prefix),
        cmocka_unit_test(every_family_is_known_under_every_published_prefix),
        cmocka_unit_test(an_indexer_s_tensors_are_known_by_both_names),
        cmocka_unit_test(ggml_s_name_stands_for_the_first_family_that_has_it),
        cmocka_unit_test(an_unknown_value_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
