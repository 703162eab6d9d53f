/* formats/vocab/gguf_vocab.h - WordPiece and Unigram go into GGUF's keys and come back to the same ids; what the keys cannot say is
 * refused, and what a file of others leaves out is what llama.cpp takes for it. */
#include "formats/gguf/gguf.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/gguf_vocab.h"
#include "formats/vocab/hf_tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/support/tokenizer_fixture.h"

#include <stdio.h>
#include <string.h>

/* The style's tokenizer.json without the added tokens that are not special or take spaces. */
static cJSON *read_style(const char *name)
{
    char path[200];

    snprintf(path, sizeof path, "tests/data/tokenizer/styles/%s.json", name);
    cJSON *const json = read_json(path), *const added = cJSON_GetObjectItem(json, "added_tokens");
    for (int i = cJSON_GetArraySize(added) - 1; i >= 0; i--) {
        const cJSON *const token = cJSON_GetArrayItem(added, i);
        if (!cJSON_IsTrue(cJSON_GetObjectItem(token, "special")) || cJSON_IsTrue(cJSON_GetObjectItem(token, "lstrip")))
            cJSON_DeleteItemFromArray(added, i);
    }
    return json;
}

static void vocab_of(const cJSON *json, apr_vocab *vocab, apr_arena *arena)
{
    char *const text = cJSON_PrintUnformatted(json);
    assert_non_null(text);
    const apr_attachment file = {"tokenizer.json", (const uint8_t *)text, strlen(text)};
    const apr_model model = {.path = "test", .attachments = &file, .n_attachments = 1};
    apr_error err = {0};

    if (apr_hf_vocab_read(&model, vocab, arena, &err) != APR_OK) fail_msg("%s", err.text);
    free(text);
}

static void keys_of(const apr_vocab *vocab, apr_kv_list *kv, apr_arena *arena)
{
    apr_error err = {0};
    const char *obstacle;

    assert_int_equal(apr_gguf_vocab_obstacle(vocab, arena, &obstacle, &err), APR_OK);
    if (obstacle != NULL) fail_msg("%s", obstacle);
    *kv = (apr_kv_list){.arena = arena};
    if (apr_gguf_vocab_keys(vocab, kv, &err) != APR_OK) fail_msg("%s", err.text);
}

static void read_keys(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena)
{
    apr_error err = {0};
    if (apr_gguf_vocab(kv, vocab, arena, "test", &err) != APR_OK) fail_msg("%s", err.text);
}

static void expect_same_ids(const apr_vocab *a, const apr_vocab *b)
{
    cJSON *const golden = read_json("tests/data/tokenizer/styles/ids");
    apr_tokenizer *of_a, *of_b;
    apr_error err = {0};
    const cJSON *text;
    int n_texts = 0;

    if (apr_tokenizer_open(&of_a, a, &err) != APR_OK || apr_tokenizer_open(&of_b, b, &err) != APR_OK) fail_msg("%s", err.text);
    cJSON_ArrayForEach(text, apr_json_get(golden, "texts"))
    {
        const apr_encode_options whole = {.add_special = true, .parse_special = true};
        const size_t n = strlen(text->valuestring);
        int32_t *ids_a, *ids_b;
        size_t n_a, n_b;
        assert_int_equal(apr_tokenizer_encode(of_a, text->valuestring, n, &whole, &ids_a, &n_a, &err), APR_OK);
        assert_int_equal(apr_tokenizer_encode(of_b, text->valuestring, n, &whole, &ids_b, &n_b, &err), APR_OK);
        if (n_a != n_b || memcmp(ids_a, ids_b, n_a * sizeof *ids_a) != 0) fail_msg("other ids of \"%s\"", text->valuestring);
        free(ids_a);
        free(ids_b);
        n_texts++;
    }
    assert_int_equal(n_texts, 68);
    apr_tokenizer_close(of_a);
    apr_tokenizer_close(of_b);
    cJSON_Delete(golden);
}

static apr_str string_at(const apr_kv_list *kv, const char *key, int64_t id)
{
    const apr_kv *const item = apr_kv_find(kv, key);
    assert_non_null(item);
    assert_true(id >= 0 && (uint64_t)id < item->n_elems);
    return item->value.strings[id];
}

static int32_t id_of(const apr_vocab *v, const char *text)
{
    for (size_t id = 0; id < v->n_tokens; id++)
        if (apr_str_is(v->tokens[id], text)) return (int32_t)id;
    fail_msg("no token is \"%s\"", text);
    return -1;
}

static void word_piece_is_bert(void **state)
{
    cJSON *const json = read_style("bert");
    apr_arena arena = {0};
    apr_vocab vocab, back;
    apr_kv_list kv;
    int64_t id = -1;
    bool on = false;

    (void)state;
    cJSON_AddNumberToObject(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "model"), "vocab"), "##\xe2\x96\x81zq", 420);
    vocab_of(json, &vocab, &arena);
    keys_of(&vocab, &kv, &arena);
    assert_int_equal(apr_gguf_bert_ambiguous(&vocab), 420);
    assert_true(apr_str_is(string_at(&kv, "tokenizer.ggml.tokens", id_of(&vocab, "the")), "\xe2\x96\x81the"));
    assert_true(apr_str_is(string_at(&kv, "tokenizer.ggml.tokens", id_of(&vocab, "##e")), "e"));
    assert_true(apr_str_is(string_at(&kv, "tokenizer.ggml.tokens", id_of(&vocab, "[CLS]")), "[CLS]"));
    assert_true(apr_kv_get_int(&kv, "tokenizer.ggml.seperator_token_id", &id) && id == id_of(&vocab, "[SEP]"));
    assert_true(apr_kv_get_int(&kv, "tokenizer.ggml.cls_token_id", &id) && id == id_of(&vocab, "[CLS]"));
    assert_true(apr_kv_get_int(&kv, "tokenizer.ggml.mask_token_id", &id) && id == id_of(&vocab, "[MASK]"));
    assert_true(apr_kv_get_int(&kv, "tokenizer.ggml.unknown_token_id", &id) && id == id_of(&vocab, "[UNK]"));
    assert_true(apr_kv_get_bool(&kv, "tokenizer.ggml.normalizer.lowercase", &on) && on);
    assert_null(apr_kv_find(&kv, "tokenizer.aprkit.splits"));
    read_keys(&kv, &back, &arena);
    assert_int_equal(back.kind, APR_VOCAB_WPM);
    for (size_t i = 0; i < vocab.n_tokens; i++)
        if (vocab.tokens[i].n_bytes != back.tokens[i].n_bytes ||
            memcmp(vocab.tokens[i].text, back.tokens[i].text, back.tokens[i].n_bytes) != 0)
            fail_msg("token %zu", i);
    expect_same_ids(&vocab, &back);
    apr_arena_close(&arena);
    cJSON_Delete(json);
}

static void the_case_is_kept_where_the_key_says_so(void **state)
{
    cJSON *const json = read_style("bert"), *const normalizer = cJSON_GetObjectItem(json, "normalizer");
    apr_arena arena = {0};
    apr_vocab vocab, back;
    apr_kv_list kv;

    (void)state;
    cJSON_ReplaceItemInObject(normalizer, "lowercase", cJSON_CreateFalse());
    vocab_of(json, &vocab, &arena);
    keys_of(&vocab, &kv, &arena);
    read_keys(&kv, &back, &arena);
    assert_int_equal(back.normals[0].flags, APR_BERT_CLEAN | APR_BERT_CHINESE);
    expect_same_ids(&vocab, &back);
    apr_arena_close(&arena);
    cJSON_Delete(json);
}

static void unigram_is_t5(void **state)
{
    cJSON *const json = read_style("t5");
    apr_arena arena = {0};
    apr_vocab vocab, back;
    apr_kv_list kv;
    bool on = false;

    (void)state;
    vocab_of(json, &vocab, &arena);
    keys_of(&vocab, &kv, &arena);
    assert_true(apr_kv_get_bool(&kv, "tokenizer.ggml.remove_extra_whitespaces", &on) && on);
    assert_true(apr_kv_get_bool(&kv, "tokenizer.ggml.add_space_prefix", &on) && on);
    const apr_kv *const map = apr_kv_find(&kv, "tokenizer.ggml.precompiled_charsmap");
    assert_true(map != NULL && map->elem_type == APR_KV_U8 && map->n_elems == vocab.normals[0].from.n_bytes);
    assert_non_null(apr_kv_find(&kv, "tokenizer.ggml.scores"));
    read_keys(&kv, &back, &arena);
    assert_int_equal(back.kind, APR_VOCAB_UGM);
    for (size_t i = 0; i < vocab.n_tokens; i++)
        if (vocab.types[i] == APR_TOKEN_NORMAL && vocab.log_probs[i] != back.log_probs[i]) fail_msg("score %zu", i);
    expect_same_ids(&vocab, &back);
    apr_arena_close(&arena);
    cJSON_Delete(json);
}

/* "##[CLS]" would be stored like "[CLS]". */
static void tokens_that_become_one_are_refused(void **state)
{
    cJSON *const json = read_style("bert");
    apr_arena arena = {0};
    apr_vocab vocab;
    apr_error err = {0};
    const char *obstacle;

    (void)state;
    cJSON_AddNumberToObject(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "model"), "vocab"), "##[CLS]", 420);
    vocab_of(json, &vocab, &arena);
    assert_int_equal(apr_gguf_vocab_obstacle(&vocab, &arena, &obstacle, &err), APR_OK);
    if (obstacle == NULL || strstr(obstacle, "two tokens of the tokenizer are \"[CLS]\"") == NULL) fail_msg("'%s'", obstacle);
    apr_arena_close(&arena);
    cJSON_Delete(json);
}

static void what_the_kinds_cannot_express_is_refused(void **state)
{
    static const struct {
        const char *style, *part, *json, *words; /* the part of tokenizer.json that is another */
    } cases[] = {
        {"wordpiece", NULL, NULL, "changes text in another way than BERT's"},
        {"albert", NULL, NULL, "changes text in another way than T5's"},
        {"fallback", NULL, NULL, "changes text in another way than T5's"},
        {"bert", "normalizer", "{\"type\":\"BertNormalizer\",\"clean_text\":false,\"lowercase\":true}", "changes text in another way"},
        {"bert", "pre_tokenizer", "{\"type\":\"Whitespace\"}", "splits text in another way than BERT's"},
        {"bert", "post_processor", "null", "adds no token before and after a text"},
        {"bert", "added_tokens", "[{\"id\":420,\"content\":\"New\",\"special\":false}]", "added tokens that are not special"},
        {"t5", "pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"never\",\"split\":true}",
         "splits text in another way than T5's"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        cJSON *const json = read_style(cases[i].style);
        apr_arena arena = {0};
        apr_vocab vocab;
        apr_error err = {0};
        const char *obstacle;
        if (cases[i].part != NULL) cJSON_ReplaceItemInObject(json, cases[i].part, cJSON_Parse(cases[i].json));
        vocab_of(json, &vocab, &arena);
        assert_int_equal(apr_gguf_vocab_obstacle(&vocab, &arena, &obstacle, &err), APR_OK);
        if (obstacle == NULL || strstr(obstacle, cases[i].words) == NULL) fail_msg("case %zu: '%s'", i, obstacle != NULL ? obstacle : "");
        apr_arena_close(&arena);
        cJSON_Delete(json);
    }
}

static void put_list(apr_kv_list *kv, const char *key, apr_kv_type type, size_t n, const void *values)
{
    apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = type, .n_elems = n};
    apr_error err = {0};
    if (type == APR_KV_STRING) item.value.strings = values;
    else item.value.numbers = values;
    assert_int_equal(apr_kv_set(kv, &item, &err), APR_OK);
}

static void missing_keys_are_what_llama_cpp_takes_them_for(void **state)
{
    apr_str tokens[104];
    apr_arena arena = {0};
    apr_kv_list kv = {.arena = &arena};
    apr_vocab v;
    apr_error err = {0};

    (void)state;
    for (size_t i = 0; i < COUNT(tokens); i++) tokens[i] = apr_str_of(apr_arena_print(&arena, "\xe2\x96\x81%zu", i));
    put_list(&kv, "tokenizer.ggml.tokens", APR_KV_STRING, COUNT(tokens), tokens);
    assert_int_equal(apr_kv_set_string(&kv, "tokenizer.ggml.model", apr_str_of("bert"), &err), APR_OK);
    read_keys(&kv, &v, &arena);
    assert_int_equal(v.bos_id, 101);
    assert_int_equal(v.eos_id, 102);
    assert_int_equal(v.unk_id, 100);
    assert_true(v.add_bos && v.add_eos);
    assert_int_equal(v.normals[0].flags, APR_BERT_CLEAN | APR_BERT_CHINESE | APR_BERT_LOWERCASE | APR_BERT_ACCENTS);
    assert_int_equal(apr_kv_set_bool(&kv, "tokenizer.ggml.normalizer.lowercase", false, &err), APR_OK);
    read_keys(&kv, &v, &arena);
    assert_int_equal(v.normals[0].flags, APR_BERT_CLEAN | APR_BERT_CHINESE); /* accents go with the case */
    apr_arena_close(&arena);
}

static void a_t5_of_other_rules_or_scores_is_not_run(void **state)
{
    static const float scores[] = {0, 0, 0, -1};
    const apr_str tokens[] = {apr_str_of("<pad>"), apr_str_of("</s>"), apr_str_of("<unk>"),
                              apr_str_of("\xe2\x96\x81"
                                         "a")};
    static const double few[] = {0, 0};

    (void)state;
    for (int i = 0; i < 4; i++) {
        apr_arena arena = {0};
        apr_kv_list kv = {.arena = &arena};
        apr_vocab v;
        apr_error err = {0};
        put_list(&kv, "tokenizer.ggml.tokens", APR_KV_STRING, COUNT(tokens), tokens);
        put_list(&kv, "tokenizer.ggml.scores", APR_KV_F32, COUNT(scores), scores);
        assert_int_equal(apr_kv_set_string(&kv, "tokenizer.ggml.model", apr_str_of("t5"), &err), APR_OK);
        assert_int_equal(apr_kv_set_bool(&kv, "tokenizer.ggml.remove_extra_whitespaces", i != 1, &err), APR_OK);
        if (i == 2) put_list(&kv, "tokenizer.ggml.precompiled_charsmap", APR_KV_F32, COUNT(scores), scores);
        if (i == 3) put_list(&kv, "tokenizer.aprkit.log_probs", APR_KV_F64, COUNT(few), few);
        const apr_status status = apr_gguf_vocab(&kv, &v, &arena, "test", &err);
        assert_int_equal(status, i < 2 ? APR_OK : APR_E_DAMAGED);
        if (i == 0) assert_true(v.kind == APR_VOCAB_UGM && v.eos_id == 1 && v.unk_id == 2 && v.add_eos && !v.add_bos);
        if (i == 1) assert_true(v.kind == APR_VOCAB_NONE && strstr(v.unsupported, "keeps each space") != NULL);
        apr_arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(word_piece_is_bert),
        cmocka_unit_test(the_case_is_kept_where_the_key_says_so),
        cmocka_unit_test(unigram_is_t5),
        cmocka_unit_test(tokens_that_become_one_are_refused),
        cmocka_unit_test(what_the_kinds_cannot_express_is_refused),
        cmocka_unit_test(missing_keys_are_what_llama_cpp_takes_them_for),
        cmocka_unit_test(a_t5_of_other_rules_or_scores_is_not_run),
    };
    return cmocka_run_group_tests_name("gguf_vocab_kinds", tests, NULL, NULL);
}
