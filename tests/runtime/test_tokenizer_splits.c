/* runtime/tokenizer/tokenizer_internal.h, tokenizer_regex.h - text cut by expressions in Oniguruma's naming, against Hugging Face's
 * tokenizers. */
#include "runtime/tokenizer/tokenizer_internal.h"
#include "runtime/tokenizer/tokenizer_regex.h"
#include "tests/support/tokenizer_fixture.h"

#include <stdio.h>

/* ---- pieces ---- */

static char pieces_found[1 << 14];
static const char *text_begin;

static void close_splits(apr_tokenizer *tokenizer)
{
    for (size_t i = 0; i < tokenizer->n_splitters; i++) pcre2_code_free(tokenizer->splitters[i].code);
}

/* "start-end start-end ..." of the text's bytes */
static apr_status record(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes)
{
    const size_t n = strlen(pieces_found);
    (void)tokenizer;
    (void)work;
    snprintf(pieces_found + n, sizeof pieces_found - n, "%s%zu-%zu", n > 0 ? " " : "", (size_t)(text - text_begin),
             (size_t)(text - text_begin) + n_bytes);
    return APR_OK;
}

/* The text in a block of its own size. */
static void cut(const apr_vocab *vocab, const char *text, const char *expected, const char *name)
{
    const size_t n_bytes = strlen(text);
    apr_tokenizer tokenizer = {.vocab = vocab};
    apr_error err = {0};
    apr_token_work work = {.err = &err};
    char *const copy = malloc(n_bytes > 0 ? n_bytes : 1);

    assert_non_null(copy);
    memcpy(copy, text, n_bytes);
    text_begin = copy;
    pieces_found[0] = '\0';
    if (apr_split_open(&tokenizer, &err) != APR_OK) fail_msg("%s: %s", name, err.text);
    if (apr_split_text(&tokenizer, &work, copy, n_bytes, record) != APR_OK) fail_msg("%s: \"%s\": %s", name, text, err.text);
    if (strcmp(pieces_found, expected) != 0) fail_msg("%s: \"%s\"\nexpected %s\ngot      %s", name, text, expected, pieces_found);
    apr_split_close_work(&work);
    close_splits(&tokenizer);
    free(copy);
}

/* tests/data/tokenizer/splits.json: published expressions, one for each construct that PCRE2 reads otherwise, every behavior. */
static void pieces_are_those_of_tokenizers(void **state)
{
    (void)state;
    cJSON *const golden = read_json("tests/data/tokenizer/splits.json");
    const cJSON *set, *line;
    int n_sets = 0;

    cJSON_ArrayForEach(set, apr_json_get(golden, "sets"))
    {
        apr_split splits[APR_MAX_SPLITS];
        apr_vocab vocab = {.kind = APR_VOCAB_BPE, .splits = splits};
        const cJSON *text = apr_json_get(golden, "texts")->child, *expected = apr_json_get(set, "cuts")->child;

        cJSON_ArrayForEach(line, apr_json_get(set, "splits")) assert_true(apr_split_parse(line->valuestring, &splits[vocab.n_splits++]));
        assert_int_equal(cJSON_GetArraySize(apr_json_get(golden, "texts")), cJSON_GetArraySize(apr_json_get(set, "cuts")));
        for (; text != NULL; text = text->next, expected = expected->next)
            cut(&vocab, text->valuestring, expected->valuestring, apr_json_get_string(set, "name"));
        n_sets++;
    }
    assert_in_range(n_sets, 30, 100);
    cJSON_Delete(golden);
}

/* The rules that GGUF names mean the same as the expressions of the tokenizers that they are called after. */
static void named_rules_cut_as_their_tokenizers_do(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-v3", "deepseek-coder"},
                             *const sets[] = {"gpt2", "llama3", "qwen2", "qwen35", "o200k", "tekken", "deepseek-v3", "deepseek-coder"};
    cJSON *const golden = read_json("tests/data/tokenizer/splits.json");
    const cJSON *set;

    for (size_t i = 0; i < COUNT(names); i++) {
        const apr_pre_rule *const rule = apr_pre_find(names[i]);
        bool found = false;
        assert_non_null(rule);
        const apr_vocab vocab = {.kind = APR_VOCAB_BPE, .pattern = rule->pattern, .splits = rule->splits, .n_splits = rule->n_splits};
        cJSON_ArrayForEach(set, apr_json_get(golden, "sets"))
        {
            const cJSON *text = apr_json_get(golden, "texts")->child, *expected = apr_json_get(set, "cuts")->child;
            if (strcmp(apr_json_get_string(set, "name"), sets[i]) != 0) continue;
            for (; text != NULL; text = text->next, expected = expected->next)
                cut(&vocab, text->valuestring, expected->valuestring, names[i]);
            found = true;
        }
        assert_true(found);
    }
    cJSON_Delete(golden);
}

/* Behind ByteLevel a step sees letters: U+00B2 is the byte b2 there, a number, here half of U+7C92 (e7 b2 92). */
static void a_step_after_the_byte_mapping_sees_letters(void **state)
{
    (void)state;
    const apr_split splits[] = {{.pattern = "\\p{N}", .letters = true}};
    const apr_vocab vocab = {.kind = APR_VOCAB_BPE, .splits = splits, .n_splits = 1};
    cut(&vocab, "a1\xe7\xb2\x92", "0-1 1-2 2-3 3-4 4-5", "letters");
}

/* ---- what is refused, and how ---- */

static void what_cannot_be_expressed_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *sentence;
    } cases[] = {
        {"a\\X", "'\\X' at byte 1: this escape is not supported"},
        {"\\G", "'\\G'"},
        {"\\K", "'\\K'"},
        {"(a)\\1", "'\\1' at byte 3"},
        {"(?<n>a)\\k<n>", "'\\k'"},
        {"\\N", "'\\N'"},
        {"\\y", "'\\y'"},
        {"\\xe9", "single bytes"},
        {"\\x{110000}", "no such character"},
        {"\\ud800", "no such character"},
        {"\\u12", "not the number of a character"},
        {"\\p{Nonsense}", "'\\p{Nonsense}' at byte 0: this property"},
        {"\\p", "this property"},
        {"\\", "this escape"},
        {"(?x: a)", "this kind of group"},
        {"(?~a)", "this kind of group"},
        {"(?(1)a|b)", "this kind of group"},
        {"(*FAIL)", "this kind of group"},
        {"(*UTF)a", "this kind of group"},
        {"(?", "this kind of group"},
        {"(?#", "is not closed"},
        {"(?<n", "is not closed"},
        {"(a", "is not closed"},
        {"a)", "no group begins"},
        {"[a", "is not closed"},
        {"[[:alpha:]", "is not closed"},
        {"[]", "empty set"},
        {"[^]]", "empty set"},
        {"[a&&]", "empty set"},
        {"[[:graph:]]", "name of a set"},
        {"[a-\\d]", "range is not valid"},
        {"[z-a]", "range is not valid"},
        {"[a-c-e]", "ambiguous"},
        {"[\\R]", "not supported in a set"},
        {"*a", "nothing to repeat"},
        {"^*", "nothing to repeat"},
        {"(?=a)+", "nothing to repeat"},
        {"{2}", "nothing to repeat"},
        {"a{3,2}", "below its minimum"},
        {"a{99999}", "more than 65535"},
        {"(?i:\xc3\x9f)", "beyond ASCII"},
        {"(?i:ss)", "ligature"},
        {"(?i:f(?:I))", "ligature"},
        {"(?i:\\p{Lu})", "property under (?i)"},
        {"(?i:[\\w])", "under (?i)"},
        {"(?i:[a-\xc3\xa9])", "beyond ASCII"},
        {"(?<=a|b+)c", "lookbehind"},
        {"\xff", "not UTF-8"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const apr_vocab vocab = {.kind = APR_VOCAB_BPE, .pattern = cases[i].pattern};
        apr_tokenizer tokenizer = {.vocab = &vocab};
        apr_error err = {0};
        assert_int_equal(apr_split_open(&tokenizer, &err), APR_E_UNSUPPORTED);
        if (strstr(err.text, "splitting pattern") == NULL || strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("%s: expected \"%s\", got \"%s\"", cases[i].pattern, cases[i].sentence, err.text);
        close_splits(&tokenizer);
    }
}

/* PCRE2 reads text without checking it again, so no step may see parts of a character. */
static void characters_are_not_split_after_bytes(void **state)
{
    (void)state;
    const apr_split splits[] = {{.pattern = ".", .letters = true}, {.pattern = "a"}};
    const apr_vocab vocab = {.kind = APR_VOCAB_BPE, .splits = splits, .n_splits = 2};
    apr_tokenizer tokenizer = {.vocab = &vocab};
    apr_error err = {0};
    assert_int_equal(apr_split_open(&tokenizer, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "after it has split bytes"));
    close_splits(&tokenizer);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    enum { DEEP = 8000 };
    static const char *const signs[] = {"(", "[", "[^", "(?i)"};
    char pattern[4 * DEEP + 1], *translated;

    for (size_t i = 0; i < COUNT(signs); i++) {
        pattern[0] = '\0';
        for (size_t n = 0; n < DEEP / strlen(signs[i]); n++) strcpy(pattern + n * strlen(signs[i]), signs[i]);
        apr_error err = {0};
        assert_int_equal(apr_regex_translate(pattern, &translated, &err), APR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "too deeply"));
        assert_null(translated);
    }
}

/* Every beginning of an expression with all constructs is translated or refused, and so is every byte of it replaced. */
static void damaged_expressions_end_well(void **state)
{
    (void)state;
    static const char whole[] = "(?i:'s|[a-c&&[^b]]{1,3}+)(?<=\\w)[^[:alpha:]\\p{^Lu}\\x{41}-\\u0043]*?(?#c)a{,2}|\\b(?<n>\\h)++$";
    static const char others[] = "([{\\&^-]?*\xc3";

    for (size_t i = 0; i + 1 < sizeof whole; i++)
        for (size_t k = 0; k < sizeof others; k++) {
            char *const pattern = strdup(whole), *translated;
            apr_error err = {0};
            pattern[i] = others[k]; /* a NUL ends it */
            const apr_status status = apr_regex_translate(pattern, &translated, &err);
            assert_true(status == APR_OK ? translated != NULL : status == APR_E_UNSUPPORTED && translated == NULL && err.text[0] != '\0');
            free(translated);
            free(pattern);
        }
}

static void steps_are_lines_of_text_and_back(void **state)
{
    (void)state;
    static const char *const lines[] = {"isolated a b", "removed,inverted \\w+", "merged_with_previous,letters ,",
                                        "contiguous,inverted,letters x", "merged_with_next  "};
    static const char *const bad[] = {"", "isolated", "isolate a", "isolated,x a", "isolated,inverted", "Isolated a"};
    apr_arena arena = {0};
    apr_split split;

    for (size_t i = 0; i < COUNT(lines); i++) {
        assert_true(apr_split_parse(lines[i], &split));
        assert_string_equal(apr_split_print(&split, &arena), lines[i]);
    }
    for (size_t i = 0; i < COUNT(bad); i++) assert_false(apr_split_parse(bad[i], &split));
    apr_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_those_of_tokenizers),
        cmocka_unit_test(named_rules_cut_as_their_tokenizers_do),
        cmocka_unit_test(a_step_after_the_byte_mapping_sees_letters),
        cmocka_unit_test(what_cannot_be_expressed_is_refused_by_name),
        cmocka_unit_test(characters_are_not_split_after_bytes),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(damaged_expressions_end_well),
        cmocka_unit_test(steps_are_lines_of_text_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
