/* test_tokenizer.c - ids against Hugging Face's tokenizers and Google's sentencepiece, and vocabularies that mean harm. */
#include "formats/crc32.h"
#include "formats/json.h"
#include "formats/map.h"
#include "runtime/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static cJSON *read_json(const char *path)
{
    apr_map map;
    apr_error err = {0};
    cJSON *json = NULL;
    assert_int_equal(apr_map_open(&map, path, &err), APR_OK);
    if (apr_json_parse(&json, map.data, map.n_bytes, path, &err) != APR_OK) fail_msg("%s", err.text);
    apr_map_close(&map);
    return json;
}

/* ---- a vocabulary from a tokenizer.json, by the shortest way ---- */

typedef struct fixture {
    cJSON *json; /* owns the strings */
    apr_vocab vocab;
    apr_str *tokens, *merges;
    uint8_t *types, *added;
} fixture;

enum { MAX_TOKENS = 2100 };

static void add_tokens(fixture *f, const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        static const struct {
            const char *key;
            uint8_t flag;
        } flags[] = {{"lstrip", APR_ADDED_LSTRIP},
                     {"rstrip", APR_ADDED_RSTRIP},
                     {"single_word", APR_ADDED_SINGLE_WORD},
                     {"normalized", APR_ADDED_NORMALIZED}};
        int64_t id;
        assert_true(apr_json_get_int(item, "id", &id) && id >= 0 && id < MAX_TOKENS);
        f->tokens[id] = apr_str_of(apr_json_get_string(item, "content"));
        f->added[id] = APR_ADDED;
        bool is = false;
        for (size_t i = 0; i < COUNT(flags); i++)
            if (apr_json_get_bool(item, flags[i].key, &is) && is) f->added[id] |= flags[i].flag;
        f->types[id] = apr_json_get_bool(item, "special", &is) && is ? APR_TOKEN_CONTROL : APR_TOKEN_USER;
        if ((size_t)id >= f->vocab.n_tokens) f->vocab.n_tokens = (size_t)id + 1;
    }
}

static fixture open_qwen2(void)
{
    fixture f = {.json = read_json("tests/data/tiny-qwen2/tokenizer.json"),
                 .tokens = calloc(MAX_TOKENS, sizeof(apr_str)),
                 .types = calloc(MAX_TOKENS, 1),
                 .added = calloc(MAX_TOKENS, 1)};
    const cJSON *const model = apr_json_get(f.json, "model"), *const merges = apr_json_get(model, "merges"), *item;

    memset(f.types, APR_TOKEN_NORMAL, MAX_TOKENS);
    cJSON_ArrayForEach(item, apr_json_get(model, "vocab")) f.tokens[(size_t)item->valuedouble] = apr_str_of(item->string);
    f.vocab.n_tokens = (size_t)cJSON_GetArraySize(apr_json_get(model, "vocab"));
    f.merges = calloc((size_t)cJSON_GetArraySize(merges) * 2, sizeof(apr_str));
    size_t n = 0;
    cJSON_ArrayForEach(item, merges)
    {
        f.merges[n++] = apr_str_of(item->child->valuestring);
        f.merges[n++] = apr_str_of(item->child->next->valuestring);
    }
    add_tokens(&f, apr_json_get(f.json, "added_tokens"));
    f.vocab = (apr_vocab){.kind = APR_VOCAB_BPE,
                          .n_tokens = f.vocab.n_tokens,
                          .tokens = f.tokens,
                          .types = f.types,
                          .added = f.added,
                          .n_merges = n / 2,
                          .merges = f.merges,
                          .pattern = apr_pre_pattern("qwen2"),
                          .nfc = true,
                          .bos_id = -1,
                          .eos_id = 2046,
                          .pad_id = 2045,
                          .unk_id = -1};
    return f;
}

static void close_fixture(fixture *f)
{
    cJSON_Delete(f->json);
    free(f->tokens);
    free(f->merges);
    free(f->types);
    free(f->added);
}

static apr_tokenizer *open_tokenizer(const apr_vocab *vocab)
{
    apr_tokenizer *tokenizer;
    apr_error err = {0};
    if (apr_tokenizer_open(&tokenizer, vocab, &err) != APR_OK) fail_msg("%s", err.text);
    return tokenizer;
}

/* ---- checking ---- */

static const apr_encode_options parsed = {.parse_special = true}, plain = {0}, with_special = {.add_special = true, .parse_special = true};

/* `text` is copied to a block of its exact size, so that reading behind it is seen. */
static void encode_bytes(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes, const apr_encode_options *options, int32_t **ids,
                         size_t *n_ids)
{
    apr_error err = {0};
    char *const exact = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(exact);
    if (n_bytes > 0) memcpy(exact, text, n_bytes);
    if (apr_tokenizer_encode(tokenizer, exact, n_bytes, options, ids, n_ids, &err) != APR_OK) fail_msg("\"%.60s\": %s", text, err.text);
    assert_non_null(*ids);
    free(exact);
}

static void check_ids(const char *what, const char *text, const int32_t *ids, size_t n_ids, const cJSON *expected)
{
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, expected)
    {
        if (i >= n_ids) fail_msg("%s \"%s\": %zu ids instead of %d", what, text, n_ids, cJSON_GetArraySize(expected));
        if (ids[i] != (int32_t)item->valuedouble)
            fail_msg("%s \"%s\": id %zu is %d, not %d", what, text, i, (int)ids[i], (int)item->valuedouble);
        i++;
    }
    if (i != n_ids) fail_msg("%s \"%s\": %zu ids instead of %zu", what, text, n_ids, i);
}

static void check_decoded(const apr_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, bool show_special, const char *expected)
{
    char *text;
    size_t n_bytes;
    assert_int_equal(apr_tokenizer_decode(tokenizer, ids, n_ids, show_special, &text, &n_bytes, NULL), APR_OK);
    assert_string_equal(text, expected);
    assert_int_equal(n_bytes, strlen(expected));
    free(text);
}

/* texts[i] must become ids[i]; and those ids the text again, when back is not NULL. */
static void check_texts(const char *what, const apr_tokenizer *tokenizer, const apr_encode_options *options, const cJSON *texts,
                        const cJSON *ids, const cJSON *back)
{
    const cJSON *text = texts->child, *expected = ids->child, *decoded = back != NULL ? back->child : NULL;
    assert_true(cJSON_GetArraySize(texts) > 0 && cJSON_GetArraySize(texts) == cJSON_GetArraySize(ids));
    for (; text != NULL; text = text->next, expected = expected->next, decoded = decoded != NULL ? decoded->next : NULL) {
        int32_t *made;
        size_t n_made;
        encode_bytes(tokenizer, text->valuestring, strlen(text->valuestring), options, &made, &n_made);
        check_ids(what, text->valuestring, made, n_made, expected);
        if (decoded != NULL) check_decoded(tokenizer, made, n_made, true, decoded->valuestring);
        free(made);
    }
}

/* ---- tests ---- */

static void golden_prompts_of_the_bundled_model_encode_and_decode(void **state)
{
    (void)state;
    fixture f = open_qwen2();
    apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
    cJSON *const golden = read_json("tests/data/tiny-qwen2/golden.json");
    const cJSON *prompt;
    int n_checked = 0;

    cJSON_ArrayForEach(prompt, apr_json_get(golden, "prompts"))
    {
        const char *const rendered = apr_json_get_string(prompt, "rendered");
        int32_t *ids;
        size_t n_ids = 0;
        encode_bytes(tokenizer, rendered, strlen(rendered), &parsed, &ids, &n_ids);
        check_ids("golden", rendered, ids, n_ids, apr_json_get(prompt, "ids"));
        check_decoded(tokenizer, ids, n_ids, true, rendered);
        free(ids);

        const cJSON *const greedy = apr_json_get(prompt, "greedy_ids"), *item;
        int32_t *const said = calloc((size_t)cJSON_GetArraySize(greedy) + 1, sizeof *said);
        size_t n_said = 0;
        cJSON_ArrayForEach(item, greedy) said[n_said++] = (int32_t)item->valuedouble;
        check_decoded(tokenizer, said, n_said, false, apr_json_get_string(prompt, "greedy_text"));
        free(said);
        n_checked++;
    }
    assert_true(n_checked >= 4);
    cJSON_Delete(golden);
    apr_tokenizer_close(tokenizer);
    close_fixture(&f);
}

static void seven_splitting_rules_agree_with_tokenizers_on_hard_texts(void **state)
{
    (void)state;
    cJSON *const golden = read_json("tests/data/tokenizer/bpe.json");
    const cJSON *const texts = apr_json_get(golden, "texts"), *set;
    fixture f = open_qwen2();
    int n_sets = 0;

    cJSON_ArrayForEach(set, apr_json_get(golden, "sets"))
    {
        const char *const pre = apr_json_get_string(set, "pre");
        apr_encode_options options = {0};
        f.vocab.pattern = apr_pre_pattern(pre);
        assert_non_null(f.vocab.pattern);
        assert_string_equal(apr_pre_name(f.vocab.pattern), pre);
        assert_true(apr_json_get_bool(set, "nfc", &f.vocab.nfc));
        assert_true(apr_json_get_bool(set, "ignore_merges", &f.vocab.ignore_merges));
        assert_true(apr_json_get_bool(set, "parse_special", &options.parse_special));
        apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
        check_texts(pre, tokenizer, &options, texts, apr_json_get(set, "ids"), f.vocab.nfc ? NULL : texts);
        apr_tokenizer_close(tokenizer);
        n_sets++;
    }
    assert_int_equal(n_sets, 9);
    close_fixture(&f);
    cJSON_Delete(golden);
}

static void added_tokens_follow_their_flags(void **state)
{
    (void)state;
    cJSON *const golden = read_json("tests/data/tokenizer/bpe.json");
    const cJSON *const added = apr_json_get(golden, "added");
    fixture f = open_qwen2();

    add_tokens(&f, apr_json_get(added, "tokens"));
    apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
    check_texts("parsed", tokenizer, &parsed, apr_json_get(added, "texts"), apr_json_get(added, "ids_parsed"), NULL);
    check_texts("plain", tokenizer, &plain, apr_json_get(added, "texts"), apr_json_get(added, "ids_plain"), NULL);
    apr_tokenizer_close(tokenizer);
    close_fixture(&f);
    cJSON_Delete(golden);
}

static char *repeat(const char *unit, size_t n, size_t *n_bytes)
{
    const size_t size = strlen(unit);
    char *const text = malloc(size * n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * size, unit, size);
    *n_bytes = size * n;
    return text;
}

static void long_runs_agree_with_tokenizers(void **state)
{
    (void)state;
    cJSON *const golden = read_json("tests/data/tokenizer/bpe.json");
    fixture f = open_qwen2();
    apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
    const cJSON *run;

    cJSON_ArrayForEach(run, apr_json_get(golden, "long"))
    {
        int64_t n = 0, expected = 0, crc = 0;
        size_t n_bytes, n_ids = 0;
        int32_t *ids;
        assert_true(apr_json_get_int(run, "n", &n) && apr_json_get_int(run, "n_ids", &expected) && apr_json_get_int(run, "crc32", &crc));
        char *const text = repeat(apr_json_get_string(run, "unit"), (size_t)n, &n_bytes);
        encode_bytes(tokenizer, text, n_bytes, &parsed, &ids, &n_ids);
        assert_int_equal(n_ids, expected);
        for (size_t i = 0; i < n_ids; i++) apr_store_le32(&ids[i], (uint32_t)ids[i]);
        assert_int_equal(apr_crc32(0, ids, n_ids * sizeof ids[0]), crc);
        free(ids);
        free(text);
    }
    apr_tokenizer_close(tokenizer);
    close_fixture(&f);
    cJSON_Delete(golden);
}

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

static void tokens_give_their_bytes_and_stops_are_known(void **state)
{
    (void)state;
    fixture f = open_qwen2();
    apr_vocab_add_stop(&f.vocab, 2045);
    apr_vocab_add_stop(&f.vocab, 2045);
    apr_vocab_add_stop(&f.vocab, -1);
    apr_vocab_add_stop(&f.vocab, 2048);
    assert_int_equal(f.vocab.n_stop_ids, 1);
    apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
    char bytes[16];

    assert_true(apr_tokenizer_is_stop(tokenizer, 2046) && apr_tokenizer_is_stop(tokenizer, 2045));
    assert_false(apr_tokenizer_is_stop(tokenizer, 2047) || apr_tokenizer_is_stop(tokenizer, -1));
    assert_int_equal(apr_tokenizer_token_bytes(tokenizer, 258, true, bytes, sizeof bytes), 4);
    assert_memory_equal(bytes, " the", 4);
    assert_int_equal(apr_tokenizer_token_bytes(tokenizer, 127, true, bytes, sizeof bytes), 1); /* half of an "é" */
    assert_int_equal((uint8_t)bytes[0], 0xc3);
    assert_int_equal(apr_tokenizer_token_bytes(tokenizer, 2046, false, bytes, sizeof bytes), 0);
    bytes[4] = '#';
    assert_int_equal(apr_tokenizer_token_bytes(tokenizer, 2046, true, bytes, 4), 10);
    assert_memory_equal(bytes, "<|im#", 5);
    assert_int_equal(apr_tokenizer_token_bytes(tokenizer, 2048, true, bytes, sizeof bytes), 0);
    assert_int_equal(apr_tokenizer_token_bytes(tokenizer, -5, true, NULL, 0), 0);
    apr_tokenizer_close(tokenizer);
    close_fixture(&f);
}

/* A vocabulary as GGUF gives it has no flags: the types say which tokens are added. */
static void types_stand_in_for_flags_and_bos_and_eos_are_added(void **state)
{
    (void)state;
    fixture f = open_qwen2();
    f.vocab.added = NULL;
    f.vocab.add_bos = f.vocab.add_eos = true;
    f.vocab.bos_id = 2045;
    apr_tokenizer *const tokenizer = open_tokenizer(&f.vocab);
    int32_t *ids;
    size_t n_ids = 0;

    encode_bytes(tokenizer, "<|im_end|>", 10, &with_special, &ids, &n_ids);
    assert_int_equal(n_ids, 3);
    assert_int_equal(ids[0], 2045);
    assert_int_equal(ids[1], 2046);
    assert_int_equal(ids[2], 2046);
    free(ids);
    encode_bytes(tokenizer, "<|im_end|>", 10, &plain, &ids, &n_ids);
    assert_true(n_ids > 3);
    check_decoded(tokenizer, ids, n_ids, false, "<|im_end|>");
    free(ids);
    apr_tokenizer_close(tokenizer);
    close_fixture(&f);
}

/* ---- SentencePiece ---- */

typedef struct pieces {
    cJSON *json;
    apr_str tokens[600], merges[4096];
    float scores[600];
    uint8_t types[600];
    apr_vocab vocab;
} pieces;

static void open_pieces(pieces *p)
{
    const cJSON *item;
    size_t n = 0;

    *p = (pieces){.json = read_json("tests/data/tokenizer/spm.json")};
    cJSON_ArrayForEach(item, apr_json_get(p->json, "pieces")) p->tokens[n++] = apr_str_of(item->valuestring);
    assert_int_equal(n, 600);
    n = 0;
    cJSON_ArrayForEach(item, apr_json_get(p->json, "scores")) p->scores[n++] = (float)item->valuedouble;
    n = 0;
    cJSON_ArrayForEach(item, apr_json_get(p->json, "types")) p->types[n++] = (uint8_t)item->valuedouble;
    p->vocab = (apr_vocab){.kind = APR_VOCAB_SPM,
                           .n_tokens = 600,
                           .tokens = p->tokens,
                           .types = p->types,
                           .scores = p->scores,
                           .byte_fallback = true,
                           .add_space_prefix = true,
                           .escape_spaces = true,
                           .bos_id = 1,
                           .eos_id = 2,
                           .pad_id = -1};
}

static void scores_agree_with_sentencepiece(void **state)
{
    (void)state;
    pieces p;
    open_pieces(&p);
    apr_tokenizer *const tokenizer = open_tokenizer(&p.vocab);
    check_texts("spm", tokenizer, &plain, apr_json_get(p.json, "texts"), apr_json_get(p.json, "ids"), apr_json_get(p.json, "decoded"));
    apr_tokenizer_close(tokenizer);
    cJSON_Delete(p.json);
}

static void merges_with_byte_fallback_agree_with_tokenizers(void **state)
{
    (void)state;
    pieces p;
    const cJSON *item;
    open_pieces(&p);
    cJSON_ArrayForEach(item, apr_json_get(p.json, "hf_merges"))
    {
        const char *const space = strchr(item->valuestring, ' ');
        assert_true(space != NULL && p.vocab.n_merges < COUNT(p.merges) / 2);
        p.merges[2 * p.vocab.n_merges] = (apr_str){item->valuestring, (size_t)(space - item->valuestring)};
        p.merges[2 * p.vocab.n_merges++ + 1] = apr_str_of(space + 1);
    }
    p.vocab.merges = p.merges;
    p.vocab.scores = NULL;
    apr_tokenizer *const tokenizer = open_tokenizer(&p.vocab);
    check_texts("spm merges", tokenizer, &plain, apr_json_get(p.json, "hf_texts"), apr_json_get(p.json, "hf_ids"),
                apr_json_get(p.json, "hf_decoded"));
    apr_tokenizer_close(tokenizer);
    cJSON_Delete(p.json);
}

static void only_the_start_of_the_text_gets_a_space(void **state)
{
    (void)state;
    pieces p;
    open_pieces(&p);
    p.vocab.add_bos = true;
    apr_tokenizer *const tokenizer = open_tokenizer(&p.vocab);
    int32_t *ids;
    size_t n_ids = 0;

    encode_bytes(tokenizer, "a<s>a", 5, &with_special, &ids, &n_ids);
    const char *const shown[] = {"<s>", " a", "<s>", "a"};
    assert_int_equal(n_ids, COUNT(shown));
    for (size_t i = 0; i < n_ids; i++) {
        char bytes[8];
        assert_int_equal(apr_tokenizer_token_bytes(tokenizer, ids[i], true, bytes, sizeof bytes), strlen(shown[i]));
        assert_memory_equal(bytes, shown[i], strlen(shown[i]));
    }
    check_decoded(tokenizer, ids, n_ids, false, "aa");
    free(ids);
    apr_tokenizer_close(tokenizer);
    cJSON_Delete(p.json);
}

static void without_bytes_a_run_of_unknown_text_is_one_unknown_token(void **state)
{
    (void)state;
    pieces p;
    open_pieces(&p);
    p.vocab.byte_fallback = false;
    apr_tokenizer *tokenizer = open_tokenizer(&p.vocab);
    int32_t *ids;
    size_t n_ids = 0;
    encode_bytes(tokenizer, "the \xe4\xb8\xad\xe6\x96\x87", 10, &plain, &ids, &n_ids);
    assert_true(n_ids >= 2);
    assert_int_equal(ids[n_ids - 1], 0);
    assert_int_not_equal(ids[n_ids - 2], 0);
    free(ids);
    apr_tokenizer_close(tokenizer);

    p.vocab.unk_id = -1;
    apr_error err = {0};
    tokenizer = open_tokenizer(&p.vocab);
    assert_int_equal(apr_tokenizer_encode(tokenizer, "\xe4\xb8\xad", 3, &plain, &ids, &n_ids, &err), APR_E_DAMAGED);
    apr_tokenizer_close(tokenizer);
    cJSON_Delete(p.json);
}

/* ---- vocabularies that mean harm ---- */

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
                             .pattern = "b?", /* matches nothing, too */
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
    } cases[] = {{"(a+)+$", 64},        {"(a|aa)+c", 64},        {"(a+)+b|.", 64},        {"(?<!x)(a|a)*\\z", 64},
                 {"(a*a*a*a*)$", 8000}, {"(a(?1)?)+b", 1000000}, {"(?=((a+)+b))a", 8000}, {"((a|b|c|d)(?2)*)*e", 8000},
                 {"a\\Kd|a", 64}};
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
        cmocka_unit_test(golden_prompts_of_the_bundled_model_encode_and_decode),
        cmocka_unit_test(seven_splitting_rules_agree_with_tokenizers_on_hard_texts),
        cmocka_unit_test(added_tokens_follow_their_flags),
        cmocka_unit_test(long_runs_agree_with_tokenizers),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(tokens_give_their_bytes_and_stops_are_known),
        cmocka_unit_test(types_stand_in_for_flags_and_bos_and_eos_are_added),
        cmocka_unit_test(scores_agree_with_sentencepiece),
        cmocka_unit_test(merges_with_byte_fallback_agree_with_tokenizers),
        cmocka_unit_test(only_the_start_of_the_text_gets_a_space),
        cmocka_unit_test(without_bytes_a_run_of_unknown_text_is_one_unknown_token),
        cmocka_unit_test(hostile_vocabularies_are_refused_with_a_sentence),
        cmocka_unit_test(odd_vocabularies_encode_what_they_can),
        cmocka_unit_test(catastrophic_patterns_give_up),
        cmocka_unit_test(many_equal_prefixes_among_added_tokens_are_found_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
