/* test_tokenizer_hostile.c - texts and vocabularies that mean harm to the tokenizer. */
#include "tests/support/tokenizer_fixture.h"

#include <time.h>

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x80",        "a\xff",       "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "ok \xe2\x82", "\xf0\x9f\x98"};
    fixture f = open_qwen2();
    apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
    for (size_t i = 0; i < COUNT(bad); i++) {
        apr_error err = {0};
        int32_t *ids;
        size_t n_ids;
        assert_int_equal(apr_tokenizer_encode(tokenizer, bad[i], strlen(bad[i]), &plain, &ids, &n_ids, &err), APR_E_DAMAGED);
        assert_null(ids);
        assert_non_null(strstr(err.text, "UTF-8"));
    }
    apr_tokenizer_close(tokenizer);
    close_fixture(&f);
}

static void check_refused(const apr_vocab *vocab, apr_status expected, const char *word)
{
    apr_tokenizer *tokenizer;
    apr_error err = {0};
    assert_int_equal(apr_tokenizer_open(&tokenizer, vocab, &err), expected);
    assert_null(tokenizer);
    if (strstr(err.text, word) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

static void hostile_vocabularies_are_refused_with_a_sentence(void **state)
{
    (void)state;
    apr_str tokens[] = {{"a", 1}, {"", 0}, {"b", 1}, {"ab", 2}, {"a", 1}};
    const apr_str no_left[] = {{"x", 1}, {"a", 1}}, no_right[] = {{"a", 1}, {"", 0}}, no_result[] = {{"b", 1}, {"a", 1}};
    const apr_vocab good = {.kind = APR_VOCAB_BPE, .n_tokens = COUNT(tokens), .tokens = tokens, .unk_id = -1, .bos_id = -1, .eos_id = -1};
    uint8_t types[COUNT(tokens)] = {APR_TOKEN_NORMAL, APR_TOKEN_CONTROL, APR_TOKEN_USER, APR_TOKEN_NORMAL, APR_TOKEN_CONTROL};
    const apr_str *const broken[] = {no_left, no_right, no_result};
    static const char *const patterns[] = {"(", "[a", "\\C", "(?<=a*)b", "a{99999}", "\xff", "((a{900}){900}){900}"};
    apr_vocab vocab;

    check_refused(NULL, APR_E_UNSUPPORTED, "no vocabulary");
    check_refused(&(apr_vocab){0}, APR_E_UNSUPPORTED, "no vocabulary");
    check_refused(&(apr_vocab){.kind = APR_VOCAB_BPE}, APR_E_UNSUPPORTED, "no vocabulary");
    check_refused(&(apr_vocab){.kind = APR_VOCAB_BPE, .n_tokens = SIZE_MAX, .tokens = tokens}, APR_E_DAMAGED, "tokens");
    for (size_t i = 0; i < COUNT(broken); i++) {
        vocab = good;
        vocab.n_merges = 1;
        vocab.merges = broken[i];
        check_refused(&vocab, APR_E_DAMAGED, "merge 0");
    }
    vocab = good;
    vocab.n_merges = SIZE_MAX / 8;
    vocab.merges = no_left;
    check_refused(&vocab, APR_E_DAMAGED, "merges");
    for (size_t i = 0; i < COUNT(patterns); i++) {
        vocab = good;
        vocab.pattern = patterns[i];
        check_refused(&vocab, APR_E_UNSUPPORTED, "pattern");
    }
    vocab = good;
    vocab.pre = "deepseek-llm";
    check_refused(&vocab, APR_E_UNSUPPORTED, "deepseek-llm");
    vocab = good;
    vocab.kind = APR_VOCAB_SPM;
    check_refused(&vocab, APR_E_UNSUPPORTED, "neither scores nor merges");
    char *const long_token = calloc(1, 100000);
    memset(long_token, 'a', 99999);
    tokens[1] = apr_str_of(long_token);
    vocab = good;
    vocab.types = types;
    check_refused(&vocab, APR_E_UNSUPPORTED, "99999 bytes");
    free(long_token);
}

static void odd_vocabularies_encode_what_they_can(void **state)
{
    (void)state;
    const apr_str tokens[] = {{"a", 1}, {"", 0}, {"b", 1}, {"ab", 2}, {"a", 1}, {"\xff\xfe", 2}};
    const uint8_t types[] = {APR_TOKEN_NORMAL, APR_TOKEN_CONTROL, APR_TOKEN_NORMAL, APR_TOKEN_NORMAL, APR_TOKEN_NORMAL, APR_TOKEN_USER};
    const uint8_t added[] = {0, APR_ADDED, 0, 0, 0, APR_ADDED | APR_ADDED_NORMALIZED};
    const apr_str merge[] = {{"a", 1}, {"b", 1}};
    const apr_vocab vocab = {.kind = APR_VOCAB_BPE,
                             .n_tokens = COUNT(tokens),
                             .tokens = tokens,
                             .types = types,
                             .added = added,
                             .n_merges = 1,
                             .merges = merge,
                             .nfc = true,
                             .pattern = "b?", /* also matches nothing */
                             .unk_id = -1,
                             .bos_id = -1,
                             .eos_id = -1};
    apr_tokenizer *tokenizer = open_tokenizer(&vocab);
    apr_error err = {0};
    int32_t *ids;
    size_t n_ids = 0;

    encode_bytes(tokenizer, "aab", 3, &parsed, &ids, &n_ids);
    assert_int_equal(n_ids, 3); /* the pattern cuts in front of every "a" and around "b" */
    assert_int_equal(ids[2], 2);
    check_decoded(tokenizer, ids, n_ids, true, "aab");
    free(ids);
    assert_int_equal(apr_tokenizer_encode(tokenizer, "c", 1, &plain, &ids, &n_ids, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "0x63"));
    apr_tokenizer_close(tokenizer);

    apr_vocab unsplit = vocab;
    unsplit.pattern = NULL;
    unsplit.unk_id = 4;
    tokenizer = open_tokenizer(&unsplit);
    encode_bytes(tokenizer, "abcab", 5, &parsed, &ids, &n_ids);
    assert_int_equal(n_ids, 3);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 4);
    free(ids);
    apr_tokenizer_close(tokenizer);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void catastrophic_patterns_give_up(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        size_t n_bytes;
    } cases[] = {{"(a+)+$", 64},        {"(a|aa)+c", 64},          {"(a+)+b|.", 64},        {"(?<!x)(a|a)*\\z", 64},
                 {"(a*a*a*a*)$", 8000}, {"(?:(?:a{1,9})+)+b", 64}, {"(?=((a+)+b))a", 8000}, {"[a&&\\w]+(?:(?:[a-c&&[^c]]+)+)+e", 64}};
    fixture f = open_qwen2();
    for (size_t i = 0; i < COUNT(cases); i++) {
        const size_t n = cases[i].n_bytes;
        apr_error err = {0};
        int32_t *ids;
        size_t n_ids;
        char *const text = malloc(n);
        assert_non_null(text);
        memset(text, 'a', n);
        memcpy(text + n - 5, "d\nbec", 5);
        f.vocab.pattern = cases[i].pattern;
        apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
        const double start = seconds_now();
        const apr_status status = apr_tokenizer_encode(tokenizer, text, n, &plain, &ids, &n_ids, &err);
        if (status != APR_E_UNSUPPORTED || strstr(err.text, "splitting pattern") == NULL)
            fail_msg("%s: status %d, \"%s\"", cases[i].pattern, status, err.text);
        assert_true(seconds_now() - start < 20); /* milliseconds when nothing else runs */
        apr_tokenizer_close(tokenizer);
        free(text);
    }
    close_fixture(&f);
}

static void many_equal_prefixes_among_added_tokens_are_found_quickly(void **state)
{
    (void)state;
    enum { N = 1000 };
    fixture f = open_qwen2();
    char *const as = malloc(N + 1);
    apr_str *const tokens = calloc(2048 + N, sizeof *tokens);
    uint8_t *const added = calloc(2048 + N, 1), *const types = malloc(2048 + N);
    int32_t *ids;
    size_t n_ids = 0;

    memset(as, 'a', N + 1);
    memcpy(tokens, f.tokens, 2048 * sizeof *tokens);
    memset(types, APR_TOKEN_NORMAL, 2048 + N);
    for (size_t i = 0; i < N; i++) {
        tokens[2048 + i] = (apr_str){as, i + 1};
        added[2048 + i] = APR_ADDED;
    }
    f.vocab.tokens = tokens;
    f.vocab.types = types;
    f.vocab.added = added;
    f.vocab.n_tokens = 2048 + N;
    apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
    encode_bytes(tokenizer, as, N + 1, &plain, &ids, &n_ids);
    assert_int_equal(n_ids, 2);
    assert_int_equal(ids[0], 2048 + N - 1);
    assert_int_equal(ids[1], 2048);
    free(ids);
    apr_tokenizer_close(tokenizer);
    free(as);
    free(tokens);
    free(added);
    free(types);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(hostile_vocabularies_are_refused_with_a_sentence),
        cmocka_unit_test(odd_vocabularies_encode_what_they_can),
        cmocka_unit_test(catastrophic_patterns_give_up),
        cmocka_unit_test(many_equal_prefixes_among_added_tokens_are_found_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
