/* WordPiece, Unigram, normalizers, spaces in front: ids are those of Hugging Face's tokenizers. tests/tokenizer_styles.py makes the
 * vectors and compares many more. */
#include "formats/base/base64.h"
#include "formats/base/bytes.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/support/tokenizer_fixture.h"

#include <stdio.h>
#include <string.h>

typedef struct opened {
    char *text;
    apr_arena arena;
    apr_vocab vocab;
    apr_tokenizer *tokenizer;
} opened;

static apr_status open_text(opened *o, const char *json, apr_error *err)
{
    const apr_attachment file = {"tokenizer.json", (const uint8_t *)json, strlen(json)};
    const apr_model model = {.path = "test", .attachments = &file, .n_attachments = 1};

    o->arena = (apr_arena){0};
    o->tokenizer = NULL;
    APR_TRY(apr_hf_vocab_read(&model, &o->vocab, &o->arena, err));
    return apr_tokenizer_open(&o->tokenizer, &o->vocab, err);
}

static char *read_text(const char *path)
{
    apr_map map;
    apr_error err = {0};

    if (apr_map_open(&map, path, &err) != APR_OK) fail_msg("%s", err.text);
    char *const text = malloc(map.n_bytes + 1);
    assert_non_null(text);
    memcpy(text, map.data, map.n_bytes);
    text[map.n_bytes] = '\0';
    apr_map_close(&map);
    return text;
}

static void close_opened(opened *o)
{
    apr_tokenizer_close(o->tokenizer);
    apr_arena_close(&o->arena);
}

static void compare(const opened *o, const char *name, const char *text, const cJSON *expected)
{
    apr_error err = {0};
    int32_t *ids;
    size_t n, i = 0;
    const cJSON *item;

    if (apr_tokenizer_encode(o->tokenizer, text, strlen(text), &(apr_encode_options){true, true}, &ids, &n, &err) != APR_OK)
        fail_msg("%s: \"%s\": %s", name, text, err.text);
    if (n != (size_t)cJSON_GetArraySize(expected))
        fail_msg("%s: \"%s\" is %zu tokens instead of %d", name, text, n, cJSON_GetArraySize(expected));
    cJSON_ArrayForEach(item, expected)
    {
        if (ids[i] != item->valueint) fail_msg("%s: \"%s\": token %zu is %d instead of %d", name, text, i, ids[i], item->valueint);
        i++;
    }
    free(ids);
}

static void each_style_has_the_ids_of_tokenizers(void **state)
{
    (void)state;
    cJSON *const golden = read_json("tests/data/tokenizer/styles/ids");
    const cJSON *set;
    int n = 0;

    cJSON_ArrayForEach(set, apr_json_get(golden, "sets"))
    {
        apr_error err = {0};
        opened o;
        char path[200];
        const char *const name = apr_json_get_string(set, "name");
        const cJSON *text = apr_json_get(golden, "texts")->child, *expected = apr_json_get(set, "ids")->child;

        snprintf(path, sizeof path, "tests/data/tokenizer/styles/%s", apr_json_get_string(set, "file"));
        char *const json = read_text(path);
        if (open_text(&o, json, &err) != APR_OK) fail_msg("%s: %s", name, err.text);
        for (; text != NULL; text = text->next, expected = expected->next) compare(&o, name, text->valuestring, expected);
        assert_null(expected);
        close_opened(&o);
        free(json);
        n++;
    }
    assert_int_equal(n, 7);
    cJSON_Delete(golden);
}

#define WORDS            "{\"[UNK]\":0,\"a\":1,\"##b\":2,\"ab\":3,\"##c\":4}"
#define WORD_PIECE(more) "{\"model\":{\"type\":\"WordPiece\",\"vocab\":" WORDS more "}}"

static void a_word_of_pieces_is_whole_or_unknown(void **state)
{
    static const struct {
        const char *json, *text;
        int n;
        int32_t ids[4];
    } cases[] = {
        {WORD_PIECE(""), "abc", 2, {3, 4}},
        {WORD_PIECE(""), "abbc", 3, {3, 2, 4}},
        {WORD_PIECE(""), "abd", 1, {0}},
        {WORD_PIECE(",\"max_input_chars_per_word\":3"), "abbc", 1, {0}},
        {WORD_PIECE(",\"continuing_subword_prefix\":\"\""), "aab", 2, {1, 3}},
        {WORD_PIECE(""), "", 0, {0}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_error err = {0};
        opened o;
        int32_t *ids;
        size_t n;
        if (open_text(&o, cases[i].json, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(
            apr_tokenizer_encode(o.tokenizer, cases[i].text, strlen(cases[i].text), &(apr_encode_options){true, true}, &ids, &n, &err),
            APR_OK);
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(ids, cases[i].ids, n * sizeof *ids);
        free(ids);
        close_opened(&o);
    }
}

#define UNIGRAM(vocab, more) "{\"model\":{\"type\":\"Unigram\"," more "\"vocab\":" vocab "}}"

static void damage_and_excess_are_reported(void **state)
{
    static const struct {
        const char *json;
        apr_status status;
        const char *words;
    } cases[] = {
        {UNIGRAM("{}", "\"unk_id\":0,"), APR_E_DAMAGED, "model.vocab is missing"},
        {UNIGRAM("[[\"a\"]]", "\"unk_id\":0,"), APR_E_DAMAGED, "piece 0 of model.vocab is not a text and a score"},
        {UNIGRAM("[[\"a\",-1],[\"b\",1e999]]", ""), APR_E_DAMAGED, "1"},
        {WORD_PIECE(",\"max_input_chars_per_word\":100000"), APR_E_UNSUPPORTED, "at most 1000"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"},\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}"
         "}",
         APR_E_UNSUPPORTED, "not base64"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"},\"model\":{\"type\":\"WordPiece\","
         "\"vocab\":{\"a\":0}}}",
         APR_E_UNSUPPORTED, "pattern"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"},\"model\":{\"type\":\"WordPiece\","
         "\"vocab\":{\"a\":0}}}",
         APR_E_UNSUPPORTED, "Replace without a pattern"}, /* each place of a text would match, without end */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_error err = {0};
        opened o;
        const apr_status status = open_text(&o, cases[i].json, &err);
        if (status != cases[i].status || strstr(err.text, cases[i].words) == NULL)
            fail_msg("case %zu: status %d, \"%s\"", i, (int)status, err.text);
        close_opened(&o);
    }
}

/* A compiled map that deletes "q" and replaces U+00BD by "1", U+2044, "2". */
static void make_charsmap(char base64[3000])
{
    enum { N_UNITS = 512, N_TRIE = 4 * N_UNITS };
    static const char texts[] = "\0"
                                "1\xe2\x81\x84"
                                "2";
    uint8_t bytes[4 + N_TRIE + sizeof texts] = {0};
    const struct {
        size_t at;
        uint32_t unit;
    } units[] = {{'q', 'q' | 1u << 8 | ('q' ^ 1u) << 10},
                 {1, 1u << 31 | 0},
                 {0xc2, 0xc2u | 0xc2u << 10},
                 {0xbd, 0xbdu | 1u << 8 | (0xbdu ^ 2u) << 10},
                 {2, 1u << 31 | 1}};

    apr_store_le32(bytes, N_TRIE);
    for (size_t i = 0; i < COUNT(units); i++) apr_store_le32(bytes + 4 + 4 * units[i].at, units[i].unit);
    memcpy(bytes + 4 + N_TRIE, texts, sizeof texts);
    apr_base64_encode(bytes, sizeof bytes, base64);
    base64[apr_base64_chars(sizeof bytes)] = '\0';
}

#define NFC               ",{\"type\":\"NFC\"}"
#define REPLACE(from, to) ",{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define FRACTION          "1\xe2\x81\x84" /* of HALF as it is mapped */
#define HALF              "\xc2\xbd"
#define ACUTE             "\xcc\x81"

/* A space is put before a text only where its first character has not been replaced together with others. The ids are those of
 * Hugging Face's tokenizers 0.23. */
static void steps_keep_the_place_of_the_first_character(void **state)
{
    static const char first_part[] = "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\","
                                     "\"precompiled_charsmap\":\"",
                      last_part[] = "]},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
                                    "\"prepend_scheme\":\"first\",\"split\":false},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":"
                                    "[[\"<unk>\",0],[\"\xe2\x96\x81\",-1],[\"x\",-1],[\"1\",-1],[\"\xe2\x81\x84\",-1],[\"2\",-1],"
                                    "[\"\xc3\xa9\",-1],[\"a\",-1]]}}";
    static const struct {
        const char *steps, *text, *ids;
    } cases[] = {
        {NFC, HALF, "1 3 4 5 "},
        {NFC, HALF "a", "1 3 4 5 7 "},
        {NFC, HALF ACUTE, "1 3 4 5 "},
        {NFC, "q\xc3\xa9", "1 6 "},
        {NFC, "qa\xc3\xa9", "1 7 6 "},
        {NFC, "qqa", "1 7 "},
        {NFC, "q", ""},
        {NFC NFC, "e" ACUTE, "1 6 "},
        {REPLACE(FRACTION "2", "x"), HALF, "1 2 "},
        {REPLACE(FRACTION "2", "x"), HALF ACUTE, "2 "},
        {REPLACE(FRACTION, "x"), HALF, "1 2 5 "},
        {REPLACE(FRACTION, "x"), HALF ACUTE, "2 5 "},
        {REPLACE("\xc3\xa9", "x"), "q\xc3\xa9", "1 2 "},
        {REPLACE("\xe2\x81\x84", "\xc3\xa9\xc3\xa9") NFC, HALF, "1 3 6 6 5 "},
        {",{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\"},\"content\":\"x\"}", "aq", "1 2 7 2 "},
    };
    char map[3000];

    (void)state;
    make_charsmap(map);
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_error err = {0};
        opened o;
        int32_t *ids;
        size_t n;
        char json[4000], got[100] = "", *end = got;
        snprintf(json, sizeof json, "%s%s\"}%s%s", first_part, map, cases[i].steps, last_part);
        if (open_text(&o, json, &err) != APR_OK) fail_msg("%s", err.text);
        if (apr_tokenizer_encode(o.tokenizer, cases[i].text, strlen(cases[i].text), &(apr_encode_options){true, true}, &ids, &n, &err) !=
            APR_OK)
            fail_msg("case %zu: %s", i, err.text);
        for (size_t k = 0; k < n && k < 20; k++) end += sprintf(end, "%d ", (int)ids[k]);
        if (strcmp(got, cases[i].ids) != 0) fail_msg("case %zu: %s instead of %s", i, got, cases[i].ids);
        free(ids);
        close_opened(&o);
    }
}

/* A text that the vocabulary has no word for at all. */
static void without_an_unknown_token_a_text_is_refused(void **state)
{
    static const char *const jsons[] = {UNIGRAM("[[\"a\",-1]]", ""), "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}"};
    (void)state;
    for (size_t i = 0; i < COUNT(jsons); i++) {
        apr_error err = {0};
        opened o;
        int32_t *ids;
        size_t n;
        if (open_text(&o, jsons[i], &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(apr_tokenizer_encode(o.tokenizer, "x", 1, &(apr_encode_options){true, true}, &ids, &n, &err), APR_E_DAMAGED);
        assert_non_null(strstr(err.text, "no token for unknown"));
        close_opened(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_style_has_the_ids_of_tokenizers),
        cmocka_unit_test(a_word_of_pieces_is_whole_or_unknown),
        cmocka_unit_test(damage_and_excess_are_reported),
        cmocka_unit_test(steps_keep_the_place_of_the_first_character),
        cmocka_unit_test(without_an_unknown_token_a_text_is_refused),
    };
    return cmocka_run_group_tests_name("tokenizer styles", tests, NULL, NULL);
}
