/* formats/vocab/tiktoken.h - files of ranks: ids are the ranks, specials are the class's or listed, what is damaged is said.
 * tests/tokenizer_styles.py compares such files with tiktoken. */
#include "formats/base/base64.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/support/tokenizer_fixture.h"

#include <stdio.h>
#include <string.h>

/* Of every byte and of these, in the order of their ranks. */
static const char *const words[] = {"th", "in", " t", " th", "the", " the", "ing", "\xe4\xb8", "\xe4\xb8\xad"};
enum { N_RANKS = 256 + sizeof words / sizeof *words, MOST = 1 << 14 };

static void put_line(char *text, size_t *n, const void *bytes, size_t n_bytes, size_t rank)
{
    char encoded[64];
    apr_base64_encode(bytes, n_bytes, encoded);
    *n += (size_t)snprintf(text + *n, MOST - *n, "%.*s %zu\n", (int)apr_base64_chars(n_bytes), encoded, rank);
}

static const char *ranks(void)
{
    static char text[MOST];
    size_t n = 0;

    for (int i = 0; i < 256; i++) {
        const uint8_t byte = (uint8_t)i;
        put_line(text, &n, &byte, 1, (size_t)i);
    }
    for (size_t i = 0; i < COUNT(words); i++) put_line(text, &n, words[i], strlen(words[i]), 256 + i);
    return text;
}

static apr_status read_files(const char *name, const char *text, const char *config, const char *model_config, apr_vocab *vocab,
                             apr_arena *arena, apr_error *err)
{
    const apr_attachment files[] = {{name, (const uint8_t *)text, strlen(text)},
                                    {"tokenizer_config.json", (const uint8_t *)config, strlen(config)},
                                    {"config.json", (const uint8_t *)model_config, strlen(model_config)}};
    const apr_model model = {.path = "test", .attachments = files, .n_attachments = 3};

    *arena = (apr_arena){0};
    return apr_hf_vocab_read(&model, vocab, arena, err);
}

static void expect(const apr_vocab *vocab, const char *text, const int32_t *expected, size_t n_expected)
{
    apr_tokenizer *tokenizer;
    apr_error err = {0};
    int32_t *ids;
    size_t n, n_back;
    char *back;

    if (apr_tokenizer_open(&tokenizer, vocab, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_tokenizer_encode(tokenizer, text, strlen(text), &(apr_encode_options){false, true}, &ids, &n, &err), APR_OK);
    assert_int_equal(n, n_expected);
    assert_memory_equal(ids, expected, n * sizeof *ids);
    assert_int_equal(apr_tokenizer_decode(tokenizer, ids, n, true, &back, &n_back, &err), APR_OK);
    assert_string_equal(back, text);
    free(back);
    free(ids);
    apr_tokenizer_close(tokenizer);
}

static void ids_are_ranks_and_llamas_specials_come_after(void **state)
{
    apr_vocab v;
    apr_arena arena;
    apr_error err = {0};

    (void)state;
    if (read_files("tokenizer.model", ranks(), "{}", "{\"model_type\":\"llama\"}", &v, &arena, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(v.kind, APR_VOCAB_BPE);
    assert_int_equal(v.n_tokens, N_RANKS + 256);
    assert_string_equal(v.pre, "llama-bpe");
    expect(&v, "the thing", (int32_t[]){260, 259, 262}, 3);
    expect(&v, "xthe<|eot_id|>", (int32_t[]){'x', 260, N_RANKS + 9}, 3);
    expect(&v, "\xe4\xb8\xad\xe4\xb8\xad", (int32_t[]){264, 264}, 2);
    expect(&v, "<|reserved_special_token_247|>", (int32_t[]){N_RANKS + 255}, 1);
    assert_int_equal(v.bos_id, N_RANKS);
    assert_int_equal(v.n_stop_ids, 3);
    apr_arena_close(&arena);
}

#define LISTED \
    "\"added_tokens_decoder\":{\"266\":{\"content\":\"<|im_end|>\",\"special\":true},\"265\":{\"content\":\"[BOS]\",\"special\":true}}"

static void other_classes_list_their_specials(void **state)
{
    static const struct {
        const char *file, *config, *model_config;
    } cases[] = {{"tiktoken.model", "{\"tokenizer_class\":\"TikTokenTokenizer\"," LISTED "}", "{\"model_type\":\"llama\"}"},
                 {"tokenizer.model", "{" LISTED "}", "{\"model_type\":\"glm4\"}"},
                 {"qwen.tiktoken", "{" LISTED "}", "{\"model_type\":\"qwen3_5\"}"}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_vocab v;
        apr_arena arena;
        apr_error err = {0};
        if (read_files(cases[i].file, ranks(), cases[i].config, cases[i].model_config, &v, &arena, &err) != APR_OK)
            fail_msg("%s", err.text);
        assert_int_equal(v.n_tokens, N_RANKS + 2);
        expect(&v, "the<|im_end|>", (int32_t[]){260, N_RANKS + 1}, 2);
        apr_arena_close(&arena);
    }
}

static void qwens_specials_come_after_and_text_is_normalized(void **state)
{
    apr_vocab v;
    apr_arena arena;
    apr_error err = {0};

    (void)state;
    if (read_files("qwen.tiktoken", ranks(), "{\"tokenizer_class\":\"QWenTokenizer\"}", "{}", &v, &arena, &err) != APR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(v.n_tokens, N_RANKS + 208);
    assert_string_equal(v.pre, "qwen2");
    assert_true(v.nfc);
    assert_int_equal(v.bos_id, -1);
    assert_int_equal(v.eos_id, N_RANKS);
    assert_int_equal(v.n_stop_ids, 2);
    assert_int_equal(v.stop_ids[1], N_RANKS + 2);
    expect(&v, "the<|im_end|><|endoftext|>", (int32_t[]){260, N_RANKS + 2, N_RANKS}, 3);
    expect(&v, "<|extra_0|><|extra_204|>", (int32_t[]){N_RANKS + 3, N_RANKS + 207}, 2);
    expect(&v, "12", (int32_t[]){'1', '2'}, 2);
    apr_arena_close(&arena);
}

static void what_is_not_known_is_named(void **state)
{
    static const struct {
        const char *config, *model_config, *words;
    } cases[] = {{"{\"tokenizer_class\":\"OtherTokenizer\"}", "{\"model_type\":\"other\"}", "a known tokenizer_class"},
                 {"{\"tokenizer_class\":\"ChatGLM4Tokenizer\"}", "{}", "without its special tokens"}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_vocab v;
        apr_arena arena;
        apr_error err = {0};
        if (read_files("tokenizer.model", ranks(), cases[i].config, cases[i].model_config, &v, &arena, &err) != APR_OK)
            fail_msg("%s", err.text);
        assert_int_equal(v.kind, APR_VOCAB_NONE);
        if (v.unsupported == NULL || strstr(v.unsupported, cases[i].words) == NULL) fail_msg("'%s'", v.unsupported);
        apr_arena_close(&arena);
    }
}

static void damage_is_reported_with_its_line(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {{"IQ== 0\nIg== 2\n", "line 2 has the rank 2, but there are only 2 lines"},
                 {"IQ== 0\nIg== 0\n", "two tokens have the rank 0"},
                 {"IQ== 0\nI 1\n", "line 2 is not a token"},
                 {"IQ== 0\n\n", "line 2 is not a token"},
                 {"IQ== 0\nIg== 1x\n", "line 2 is not a token"},
                 {"IQ== 0\nIg==", "line 2 is not a token"},
                 {"IQ== 0\nIg== 99999999999999999999\n", "line 2 is not a token"}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_vocab v;
        apr_arena arena;
        apr_error err = {0};
        assert_int_equal(read_files("tokenizer.model", cases[i].text, "{}", "{\"model_type\":\"llama\"}", &v, &arena, &err), APR_E_DAMAGED);
        if (strstr(err.text, cases[i].words) == NULL) fail_msg("'%s' does not say '%s'", err.text, cases[i].words);
        apr_arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_ranks_and_llamas_specials_come_after),
        cmocka_unit_test(other_classes_list_their_specials),
        cmocka_unit_test(qwens_specials_come_after_and_text_is_normalized),
        cmocka_unit_test(what_is_not_known_is_named),
        cmocka_unit_test(damage_is_reported_with_its_line),
    };
    return cmocka_run_group_tests_name("tiktoken", tests, NULL, NULL);
}
