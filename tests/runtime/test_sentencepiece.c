/* formats/vocab/sentencepiece.h: a tokenizer.model that sentencepiece trained gives the ids that sentencepiece gives. */
#include "formats/files/map.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"
#include "formats/vocab/sentencepiece.h"
#include "tests/support/tokenizer_fixture.h"

#define BUNDLED "tests/data/sentencepiece/"

/* --- helpers --- */

static void check_all(const apr_vocab *v)
{
    static const apr_encode_options with_bos = {.add_special = true};
    apr_tokenizer *const tokenizer = open_tokenizer(v);
    cJSON *const golden = read_json(BUNDLED "texts.json");
    const cJSON *item;
    int n = 0;

    cJSON_ArrayForEach(item, golden)
    {
        const char *const text = apr_json_get_string(item, "text");
        int32_t *ids;
        size_t n_ids = 0;
        encode_bytes(tokenizer, text, strlen(text), &with_bos, &ids, &n_ids);
        check_ids("sentencepiece", text, ids, n_ids, apr_json_get(item, "ids"));
        free(ids);
        n++;
    }
    assert_int_equal(n, 10);
    cJSON_Delete(golden);
    apr_tokenizer_close(tokenizer);
}

static apr_status read_model(const void *bytes, size_t n_bytes, apr_vocab *v, apr_arena *arena, apr_error *err)
{
    const apr_attachment file = {"tokenizer.model", bytes, n_bytes};
    *v = (apr_vocab){0};
    *err = (apr_error){0};
    return apr_sentencepiece_read(&file, v, arena, "test", err);
}

/* One piece "a", after rules: BPE, no removal of spaces, and more. */
#define PIECE          \
    "\x0a\x0a\x0a\x01" \
    "a\x15\0\0\x80\xbf\x18\x01"
#define BPE       "\x18\x02"
#define KEEPS     "\x1a\x02\x20\0"
#define IDS       "\xc0\x02\0\xc8\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xd0\x02\0" /* unk 0, bos -1, eos 0 */
#define LEN(text) text, sizeof text - 1

/* --- tests --- */

static void texts_become_the_ids_of_sentencepiece(void **state)
{
    apr_error err = {0};
    apr_vocab v;
    apr_map map;

    (void)state;
    if (apr_map_open(&map, BUNDLED "tokenizer.model", &err) != APR_OK) fail_msg("%s", err.text);
    const apr_attachment file = {"tokenizer.model", map.data, map.n_bytes};
    apr_model model = {.path = "test", .attachments = &file, .n_attachments = 1, .hparams.vocab_size = 512};
    if (apr_hf_vocab_read(&model, &v, &model.arena, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(v.kind, APR_VOCAB_SPM);
    assert_int_equal(v.n_tokens, 512); /* the embedding's rows */
    assert_int_equal(v.types[511], APR_TOKEN_UNUSED);
    assert_true(apr_str_is(v.tokens[511], "[PAD511]"));
    assert_int_equal(v.types[0], APR_TOKEN_UNKNOWN);
    assert_int_equal(v.types[3], APR_TOKEN_USER);
    assert_int_equal(v.types[4], APR_TOKEN_BYTE);
    assert_int_equal(v.bos_id, 1);
    assert_int_equal(v.eos_id, 2);
    assert_int_equal(v.pad_id, -1);
    assert_true(v.add_bos && v.byte_fallback && v.add_space_prefix);
    check_all(&v);
    apr_arena_close(&model.arena);
    apr_map_close(&map);
}

static void the_rules_are_read(void **state)
{
    apr_arena arena = {0};
    apr_error err;
    apr_vocab v;

    (void)state;
    if (read_model(LEN(PIECE "\x12\x14" BPE IDS KEEPS), &v, &arena, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(v.kind, APR_VOCAB_SPM);
    assert_int_equal(v.n_tokens, 1);
    assert_true(v.scores[0] == -1);
    assert_int_equal(v.bos_id, -1);
    assert_false(v.add_bos);
    apr_arena_close(&arena);
}

static void what_is_not_done_is_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } table[] = {{LEN(PIECE "\x12\x02\x18\x01" KEEPS), "another kind than BPE"},
                 {LEN(PIECE), "another kind than BPE"}, /* unigram, where nothing is said */
                 {LEN(PIECE "\x12\x02" BPE), "removal of spaces"},
                 {LEN(PIECE "\x12\x02" BPE "\x1a\x05\x12\x01x\x20\0"), "table of characters"},
                 {LEN(PIECE "\x12\x05" BPE "\xc0\x01\x01" KEEPS), "spaces after words"},
                 {LEN(PIECE "\x12\x02" BPE "\x1a\x04\x20\0\x28\0"), "unescaped spaces"}};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        apr_arena arena = {0};
        apr_error err;
        apr_vocab v;
        assert_int_equal(read_model(table[i].bytes, table[i].n, &v, &arena, &err), APR_OK);
        assert_int_equal(v.kind, APR_VOCAB_NONE);
        if (v.unsupported == NULL || strstr(v.unsupported, table[i].words) == NULL) fail_msg("%zu is not '%s'", i, table[i].words);
        apr_arena_close(&arena);
    }
}

static void damage_is_reported(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } table[] = {{LEN("\x0f"), "not a SentencePiece model"},
                 {LEN("\x0a\x7f"), "not a SentencePiece model"},
                 {LEN(PIECE "\x12\x03\x18\xff\xff"), "not a SentencePiece model"},
                 {LEN("\x0a\x02\x18\x01\x12\x02" BPE KEEPS), "piece 0 has no text"},
                 {LEN("\x0a\x05\x0a\x03"
                      "a\0b\x12\x02" BPE KEEPS),
                  "piece 0 has no text"},
                 {LEN(PIECE "\x12\x02" BPE KEEPS), "token id 1 is outside of the vocabulary"}};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        apr_arena arena = {0};
        apr_error err;
        apr_vocab v;
        assert_int_equal(read_model(table[i].bytes, table[i].n, &v, &arena, &err), APR_E_DAMAGED);
        if (strstr(err.text, table[i].words) == NULL) fail_msg("'%s' does not say '%s'", err.text, table[i].words);
        apr_arena_close(&arena);
    }
}

static void tiktokens_file_of_that_name_is_known(void **state)
{
    static const char lines[] = "IQ== 0\nIg== 1\n";
    const apr_attachment file = {"tokenizer.model", (const uint8_t *)lines, sizeof lines - 1};
    apr_model model = {.path = "test", .attachments = &file, .n_attachments = 1};
    apr_error err = {0};
    apr_vocab v;

    (void)state;
    if (apr_hf_vocab_read(&model, &v, &model.arena, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(v.kind, APR_VOCAB_NONE);
    assert_string_equal(v.unsupported, "tiktoken's file of ranks, and neither a tokenizer.json nor a known tokenizer_class");
    apr_arena_close(&model.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_the_ids_of_sentencepiece),
        cmocka_unit_test(the_rules_are_read),
        cmocka_unit_test(what_is_not_done_is_named),
        cmocka_unit_test(damage_is_reported),
        cmocka_unit_test(tiktokens_file_of_that_name_is_known),
    };
    return cmocka_run_group_tests_name("sentencepiece", tests, NULL, NULL);
}
