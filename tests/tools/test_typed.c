/* test_typed.c - tools/cli/typed.h, tools/cli/type_words.h, tools/verbs/convert/out_name.h: what a sentence names to be typed instead. */
#include "tools/cli/type_words.h"
#include "tools/cli/typed.h"
#include "tools/verbs/convert/out_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void a_command_is_typed_again_with_changes(void **state)
{
    static char *const argv[] = {"/bin/aprquant", "--to=q4", "my model.gguf", "it's", "m.gguf", "m.gguf"};
    const apr_typed typed = {"aprquant", 6, argv};
    const struct {
        apr_change changes[2];
        size_t n;
        const char *text;
    } cases[] = {
        {.n = 0, .text = "aprquant --to=q4 'my model.gguf' 'it'\\''s' m.gguf m.gguf"},
        {{{.was = "q4", .is = "q4_k_m"}}, 1, "aprquant --to=q4_k_m 'my model.gguf' 'it'\\''s' m.gguf m.gguf"},
        {{{.was = "m.gguf", .is = "n o.gguf"}}, 1, "aprquant --to=q4 'my model.gguf' 'it'\\''s' m.gguf 'n o.gguf'"},
        {{{.was = "it's"}, {.is = "--force"}}, 2, "aprquant --to=q4 'my model.gguf' m.gguf m.gguf --force"},
        {{{.was = "it's", .is = "--device cuda", .words = 1}}, 1, "aprquant --to=q4 'my model.gguf' --device cuda m.gguf m.gguf"},
        {{{.was = "--to=q4"}}, 1, "aprquant 'my model.gguf' 'it'\\''s' m.gguf m.gguf"},
    };
    char text[256], small[16];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(apr_typed_text(text, sizeof text, &typed, cases[i].changes, cases[i].n), cases[i].text);
    assert_string_equal(apr_typed_text(small, sizeof small, &typed, NULL, 0), "");
}

static void a_message_that_is_too_long_for_its_buffer_is_unchanged(void **state)
{
    static char *const argv[] = {"", "show", "m.gguf"};
    const apr_typed typed = {"aprconv", 3, argv};
    apr_error err = {0};

    (void)state;
    apr_fail(&err, APR_E_USAGE, "no");
    assert_int_equal(apr_try_instead(APR_E_USAGE, &typed, NULL, 0, &err), APR_E_USAGE);
    assert_string_equal(err.text, "no; try: aprconv show m.gguf");
    memset(err.text, 'x', sizeof err.text - 10);
    err.text[sizeof err.text - 10] = '\0';
    apr_try_instead(APR_E_USAGE, &typed, NULL, 0, &err);
    assert_int_equal(strlen(err.text), sizeof err.text - 10);
}

static void types_are_known_as_people_spell_them(void **state)
{
    static const struct {
        const char *text;
        apr_type_kind kind;
        const char *name;
    } cases[] = {
        {"q4_k_m", APR_TYPE_IS, "q4_k_m"},      {"Q4KM", APR_TYPE_IS, "q4_k_m"},
        {"Q4-K-M", APR_TYPE_IS, "q4_k_m"},      {"FP16", APR_TYPE_IS, "f16"},
        {"bfloat16", APR_TYPE_IS, "bf16"},      {"float32", APR_TYPE_IS, "f32"},
        {"F8_E4M3", APR_TYPE_IS, "fp8"},        {"int8", APR_TYPE_REPLACED, "q8_0"},
        {"8-bit", APR_TYPE_REPLACED, "q8_0"},   {"q4", APR_TYPE_AMBIGUOUS, "q4_k_m"},
        {"int4", APR_TYPE_AMBIGUOUS, "q4_k_m"}, {"q5", APR_TYPE_AMBIGUOUS, "q5_k_m"},
        {"q3_k_m", APR_TYPE_IS, "q3_k_m"},      {"Q3KL", APR_TYPE_IS, "q3_k_l"},
        {"IQ4_XS", APR_TYPE_IS, "iq4_xs"},      {"q2_k", APR_TYPE_IS, "q2_k"},
        {"TQ2_0", APR_TYPE_IS, "tq2_0"},        {"nvfp4", APR_TYPE_IS, "nvfp4"},
        {"int3", APR_TYPE_AMBIGUOUS, "q3_k_m"}, {"UD-Q2_K_XL", APR_TYPE_AMBIGUOUS, "q2_k"},
        {"q4_1", APR_TYPE_IS, "q4_1"},          {"q5_1", APR_TYPE_IS, "q5_1"},
        {"auto", APR_TYPE_KEPT, NULL},          {"q9", APR_TYPE_UNKNOWN, NULL},
        {"", APR_TYPE_UNKNOWN, NULL},           {"model", APR_TYPE_UNKNOWN, NULL},
        {"Qwen2.5-7B", APR_TYPE_UNKNOWN, NULL}, {"a-word-that-is-longer-than-any-type-of-a-tensor", APR_TYPE_UNKNOWN, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const apr_type_word word = apr_type_spelled(cases[i].text);
        if (word.kind != cases[i].kind) fail_msg("'%s' is of kind %d", cases[i].text, (int)word.kind);
        if (cases[i].name != NULL) assert_string_equal(word.name, cases[i].name);
    }
}

static void an_output_is_named_next_to_its_input(void **state)
{
    static const struct {
        const char *in, *type, *out;
    } cases[] = {{"m.gguf", "q4_k_m", "m-Q4_K_M.gguf"},           {"dir/m-bf16.gguf", "q4_k_m", "dir/m-Q4_K_M.gguf"},
                 {"Qwen3-8B/", "q8_0", "Qwen3-8B-Q8_0.gguf"},     {"a.b/Llama-3.1", "f16", "a.b/Llama-3.1-F16.gguf"},
                 {"m.Q8_0.gguf", "q4_0", "m-Q4_0.gguf"},          {"x-IQ2_XXS.gguf", "mxfp4", "x-MXFP4.gguf"},
                 {"model.safetensors", "q6_k", "model-Q6_K.gguf"}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *const out = apr_out_name_next_to(cases[i].in, cases[i].type);
        assert_string_equal(out, cases[i].out);
        free(out);
    }
}

static void what_a_name_says_is_asked_before_it_is_made(void **state)
{
    static const struct {
        const char *out;
        apr_format produce;
        const char *sentence, *command; /* NULL: good */
    } cases[] = {
        {"o.gguf", APR_FORMAT_NONE, NULL, NULL},
        {"o.APR", APR_FORMAT_NONE, NULL, NULL},
        {"Qwen2.5-7B", APR_FORMAT_NONE, NULL, NULL},
        {"dir/", APR_FORMAT_NONE, NULL, NULL},
        {"sub/q4_0", APR_FORMAT_NONE, NULL, NULL},
        {"-", APR_FORMAT_NONE, "a model cannot be written to a pipe", "aprconv convert m.gguf m.apr"},
        {"o.ggfu", APR_FORMAT_NONE, "o.ggfu: OUT must end in", "aprconv convert m.gguf o.gguf"},
        {"o.apr ", APR_FORMAT_NONE, "OUT must end in", "aprconv convert m.gguf o.apr"},
        {"o.ap", APR_FORMAT_NONE, "OUT must end in", "aprconv convert m.gguf o.apr"},
        {"o.safetensors", APR_FORMAT_NONE, "a checkpoint is a folder", "aprconv convert m.gguf o/"},
        {"o.gguf", APR_FORMAT_APR, "OUT must end in .apr", "aprconv convert m.gguf o.apr"},
        {"o.gguf", APR_FORMAT_SAFETENSORS, "OUT must be a folder", "aprconv convert m.gguf o/"},
        {"Q4_K_M", APR_FORMAT_NONE, "Q4_K_M is a type, not a file name: use aprquant --to q4_k_m IN OUT",
         "aprquant --to q4_k_m m.gguf m-Q4_K_M.gguf"},
        {"q4km", APR_FORMAT_NONE, "q4km is a type", "aprquant --to q4_k_m m.gguf m-Q4_K_M.gguf"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *argv[] = {"", "convert", "m.gguf", (char *)cases[i].out};
        const apr_typed typed = {"aprconv", 4, argv};
        const apr_call call = {.typed = &typed};
        apr_error err = {0};
        const apr_status status = apr_out_name_check(&call, "m.gguf", cases[i].out, cases[i].produce, &err);
        assert_int_equal(status, cases[i].sentence == NULL ? APR_OK : APR_E_USAGE);
        if (cases[i].sentence == NULL) continue;
        if (strstr(err.text, cases[i].sentence) == NULL) fail_msg("'%s' says '%s'", cases[i].out, err.text);
        const char *const named = strstr(err.text, "; try: ");
        assert_non_null(named);
        assert_string_equal(named + 7, cases[i].command);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_is_typed_again_with_changes),
        cmocka_unit_test(a_message_that_is_too_long_for_its_buffer_is_unchanged),
        cmocka_unit_test(types_are_known_as_people_spell_them),
        cmocka_unit_test(an_output_is_named_next_to_its_input),
        cmocka_unit_test(what_a_name_says_is_asked_before_it_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
