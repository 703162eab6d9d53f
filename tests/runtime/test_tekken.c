/* formats/vocab/tekken.h and formats/vocab/rank_merges.h: ids against Mistral's own mistral-common. */
#include "formats/files/map.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"
#include "formats/vocab/rank_merges.h"
#include "formats/vocab/tekken.h"
#include "tests/support/tokenizer_fixture.h"

#define TEKKEN "tests/data/tekken/"

/* --- helpers --- */

static apr_status read_tekken(const char *text, size_t n_bytes, apr_vocab *v, apr_arena *arena, apr_error *err)
{
    const apr_attachment file = {"tekken.json", (const uint8_t *)text, n_bytes};
    *v = (apr_vocab){0};
    *err = (apr_error){0};
    return apr_tekken_read(&file, v, arena, "test", err);
}

static void open_bundled(apr_vocab *v, apr_arena *arena)
{
    apr_error err = {0};
    apr_map map;

    if (apr_map_open(&map, TEKKEN "tekken.json", &err) != APR_OK) fail_msg("%s", err.text);
    if (read_tekken((const char *)map.data, map.n_bytes, v, arena, &err) != APR_OK) fail_msg("%s", err.text);
    apr_map_close(&map);
}

static void check_all(const apr_vocab *v)
{
    static const apr_encode_options with_bos = {.add_special = true};
    apr_tokenizer *const tokenizer = open_tokenizer(v);
    cJSON *const golden = read_json(TEKKEN "ids.json");
    const cJSON *item;
    int n = 0;

    cJSON_ArrayForEach(item, golden)
    {
        const char *const text = apr_json_get_string(item, "text");
        int32_t *ids;
        size_t n_ids = 0;
        encode_bytes(tokenizer, text, strlen(text), &with_bos, &ids, &n_ids);
        check_ids("tekken", text, ids, n_ids, apr_json_get(item, "ids"));
        check_decoded(tokenizer, ids, n_ids, false, text);
        free(ids);
        n++;
    }
    assert_int_equal(n, 14);
    cJSON_Delete(golden);
    apr_tokenizer_close(tokenizer);
}

/* --- reading --- */

static void texts_become_the_ids_of_mistral_common(void **state)
{
    apr_arena arena = {0};
    apr_vocab v;

    (void)state;
    open_bundled(&v, &arena);
    assert_int_equal(v.n_tokens, 660);
    assert_string_equal(v.pre, "tekken");
    assert_int_equal(v.bos_id, 1);
    assert_int_equal(v.eos_id, 2);
    assert_int_equal(v.pad_id, 5);
    assert_int_equal(v.stop_ids[0], 2);
    assert_int_equal(v.types[19], APR_TOKEN_CONTROL);
    check_all(&v);
    apr_arena_close(&arena);
}

/* What is written as tokenizer.json says the same. */
static void a_tokenizer_json_of_a_tekken_gives_the_same_ids(void **state)
{
    apr_arena arena = {0};
    apr_vocab v, again;
    apr_error err = {0};

    (void)state;
    open_bundled(&v, &arena);
    char *const text = apr_hf_tokenizer_write(&v), *const config = apr_hf_tokenizer_config_write(&v);
    const apr_attachment files[] = {{"tokenizer.json", (const uint8_t *)text, strlen(text)},
                                    {"tokenizer_config.json", (const uint8_t *)config, strlen(config)}};
    const apr_model model = {.path = "test", .attachments = files, .n_attachments = 2};
    if (apr_hf_vocab_read(&model, &again, &arena, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(again.kind, APR_VOCAB_BPE);
    assert_int_equal(again.n_merges, v.n_merges);
    check_all(&again);
    free(text);
    free(config);
    apr_arena_close(&arena);
}

static void special_tokens_of_older_files_are_known(void **state)
{
    static const char text[] = "{\"config\":{\"pattern\":\"x\",\"default_vocab_size\":15,\"default_num_special_tokens\":13},"
                               "\"vocab\":[{\"rank\":1,\"token_bytes\":\"YQ==\",\"token_str\":\"\\u0000\\\\u0000\"},"
                               "{\"rank\":0,\"token_bytes\":\"AA==\"}],\"special_tokens\":null}";
    apr_arena arena = {0};
    apr_vocab v;
    apr_error err;

    (void)state;
    if (read_tekken(text, sizeof text - 1, &v, &arena, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(apr_str_is(v.tokens[3], "[INST]"));
    assert_true(apr_str_is(v.tokens[11], "<pad>"));
    assert_int_equal(v.pad_id, 11);
    assert_true(apr_str_is(v.tokens[13], "\xc4\x80")); /* byte 0 */
    assert_true(apr_str_is(v.tokens[14], "a"));
    apr_arena_close(&arena);
}

static void damage_is_reported(void **state)
{
#define FILE_OF(size, n_special, vocab, special)                                                                                     \
    "{\"config\":{\"pattern\":\"x\",\"default_vocab_size\":" size ",\"default_num_special_tokens\":" n_special "},\"vocab\":[" vocab \
    "],\"special_tokens\":" special "}"
#define A "{\"rank\":0,\"token_bytes\":\"YQ==\"}"
    static const struct {
        const char *text, *words;
    } table[] = {
        {"{}", "vocab, default_vocab_size, default_num_special_tokens or pattern is missing"},
        {FILE_OF("3", "1", A, "null"), "has 1 tokens, but should have 3"},
        {FILE_OF("1", "2", A, "null"), "has 1 tokens, but should have 1 with 2"},
        {FILE_OF("2", "-1", A, "null"), "special ones"},
        {FILE_OF("2", "1", "{\"rank\":0}", "null"), "lacks rank or token_bytes"},
        {FILE_OF("2", "1", "{\"rank\":0,\"token_bytes\":\"Y\"}", "null"), "not base64"},
        {FILE_OF("2", "1", "{\"rank\":0,\"token_bytes\":\"\"}", "null"), "not base64"},
        {FILE_OF("3", "1", A "," A, "null"), "two tokens have the rank 0"},
        {FILE_OF("2", "1", "{\"rank\":1,\"token_bytes\":\"YQ==\"}", "null"), "no token has the rank 0"},
        {FILE_OF("2", "1", A, "[{\"rank\":1,\"token_str\":\"x\"}]"), "a rank below 1"},
        {FILE_OF("2", "1", A, "[{\"rank\":0}]"), "lacks token_str"},
        {FILE_OF("3", "2", A, "[{\"rank\":0,\"token_str\":\"x\"},{\"rank\":0,\"token_str\":\"y\"}]"), "two special tokens have the rank 0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        apr_error err;
        assert_int_equal(read_tekken(table[i].text, strlen(table[i].text), &v, &arena, &err), APR_E_DAMAGED);
        if (strstr(err.text, table[i].words) == NULL) fail_msg("'%s' does not say '%s'", err.text, table[i].words);
        apr_arena_close(&arena);
    }
}

/* --- merges of ranks --- */

static void a_token_comes_down_to_one_pair(void **state)
{
    /* "abc" could be a+bc or ab+c; of the two, ab is the earlier token. "xyz" is made by nothing. "aaaa" is aa+aa. */
    static const apr_str tokens[] = {{"a", 1},   {"b", 1}, {"c", 1},   {"ab", 2}, {"bc", 2},
                                     {"abc", 3}, {"x", 1}, {"xyz", 3}, {"aa", 2}, {"aaaa", 4}};
    static const char *const merges[] = {"a", "b", "b", "c", "ab", "c", "a", "a", "aa", "aa"};
    enum { N = sizeof tokens / sizeof *tokens, N_MERGES = sizeof merges / sizeof *merges / 2 };
    uint8_t types[N];
    apr_vocab v = {.kind = APR_VOCAB_BPE, .n_tokens = N, .tokens = tokens, .types = types};
    apr_arena arena = {0};
    apr_error err = {0};

    (void)state;
    memset(types, APR_TOKEN_NORMAL, N);
    assert_int_equal(apr_rank_merges(&v, &arena, "test", &err), APR_OK);
    assert_int_equal(v.n_merges, N_MERGES);
    for (size_t i = 0; i < 2 * N_MERGES; i++) assert_true(apr_str_is(v.merges[i], merges[i]));
    apr_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_the_ids_of_mistral_common),  cmocka_unit_test(a_tokenizer_json_of_a_tekken_gives_the_same_ids),
        cmocka_unit_test(special_tokens_of_older_files_are_known), cmocka_unit_test(damage_is_reported),
        cmocka_unit_test(a_token_comes_down_to_one_pair),
    };
    return cmocka_run_group_tests_name("tekken", tests, NULL, NULL);
}
