/* formats/vocab/hf_tokenizer.h: tokenizers of several files, read as the one file that says the same. */
#include "formats/base/json.h"
#include "formats/files/map.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SENTENCEPIECE "tests/data/sentencepiece/tokenizer.model"

/* --- helpers --- */

enum { MAX_FILES = 8 };

typedef struct file {
    const char *name, *text;
} file;

/* spm: with a tokenizer.model. */
static apr_status read_files(const file files[MAX_FILES], const apr_map *spm, int64_t vocab_size, apr_vocab *v, apr_arena *arena,
                             apr_error *err)
{
    apr_attachment attachments[MAX_FILES + 1];
    size_t n = 0;

    for (; n < MAX_FILES && files[n].name != NULL; n++)
        attachments[n] = (apr_attachment){files[n].name, (const uint8_t *)files[n].text, strlen(files[n].text)};
    if (spm != NULL) attachments[n++] = (apr_attachment){"tokenizer.model", spm->data, spm->n_bytes};
    const apr_model model = {.path = "test", .attachments = attachments, .n_attachments = n, .hparams.vocab_size = vocab_size};
    *err = (apr_error){0};
    return apr_hf_vocab_read(&model, v, arena, err);
}

static void read_ok(const file files[MAX_FILES], const apr_map *spm, int64_t vocab_size, apr_vocab *v, apr_arena *arena)
{
    apr_error err;
    if (read_files(files, spm, vocab_size, v, arena, &err) != APR_OK) fail_msg("%s", err.text);
}

static void assert_token(const apr_vocab *v, size_t id, const char *text, int type, int flags)
{
    assert_true(id < v->n_tokens && apr_str_is(v->tokens[id], text));
    assert_int_equal(v->types[id], type);
    if (v->added != NULL) assert_int_equal(v->added[id], flags);
    else assert_int_equal(flags & ~APR_ADDED, 0);
}

/* --- SentencePiece --- */

static void added_tokens_come_after_the_pieces(void **state)
{
    char named[200], decoded[400];
    apr_arena arena = {0};
    apr_error err = {0};
    apr_vocab plain, v;
    apr_map map;

    (void)state;
    if (apr_map_open(&map, SENTENCEPIECE, &err) != APR_OK) fail_msg("%s", err.text);
    read_ok((file[MAX_FILES]){{0}}, &map, 0, &plain, &arena);
    const int n = (int)plain.n_tokens;

    /* an id is passed over, and one more than the file's tokens is filled up */
    snprintf(named, sizeof named, "{\"<|im_end|>\":%d,\"plain\":%d,\"named\":%d}", n, n + 1, n + 3);
    read_ok((file[MAX_FILES]){{"added_tokens.json", named},
                              {"tokenizer_config.json", "{\"eos_token\":\"<|im_end|>\",\"additional_special_tokens\":[\"named\"],"
                                                        "\"add_eos_token\":true}"}},
            &map, n + 5, &v, &arena);
    assert_int_equal(v.n_tokens, n + 5);
    assert_token(&v, (size_t)n, "<|im_end|>", APR_TOKEN_CONTROL, APR_ADDED);
    assert_token(&v, (size_t)n + 1, "plain", APR_TOKEN_USER, APR_ADDED);
    assert_int_equal(v.types[n + 2], APR_TOKEN_UNUSED);
    assert_token(&v, (size_t)n + 3, "named", APR_TOKEN_CONTROL, APR_ADDED);
    assert_int_equal(v.types[n + 4], APR_TOKEN_UNUSED);
    assert_memory_equal(v.types, plain.types, plain.n_tokens);
    assert_true(v.eos_id == n && v.add_eos && v.n_stop_ids == 1 && v.stop_ids[0] == n);
    assert_true(v.scores[n] < -100.0f);

    /* the decoder decides where both name an id, and has flags */
    snprintf(decoded, sizeof decoded,
             "{\"added_tokens_decoder\":{\"%d\":{\"content\":\"<|end|>\",\"special\":false,\"rstrip\":true,\"normalized\":true}}}", n);
    snprintf(named, sizeof named, "{\"<|im_end|>\":%d}", n);
    read_ok((file[MAX_FILES]){{"added_tokens.json", named}, {"tokenizer_config.json", decoded}}, &map, 0, &v, &arena);
    assert_int_equal(v.n_tokens, n + 1);
    assert_token(&v, (size_t)n, "<|end|>", APR_TOKEN_USER, APR_ADDED | APR_ADDED_RSTRIP | APR_ADDED_NORMALIZED);
    for (int id = 0; id < n; id++) {
        const int type = v.types[id];
        assert_int_equal(v.added[id], type == APR_TOKEN_CONTROL || type == APR_TOKEN_UNKNOWN || type == APR_TOKEN_USER ? APR_ADDED : 0);
    }
    apr_arena_close(&arena);
    apr_map_close(&map);
}

static void added_tokens_without_an_id_are_refused(void **state)
{
    static const file files[][MAX_FILES] = {
        {{"added_tokens.json", "{\"x\":\"7\"}"}},
        {{"added_tokens.json", "{\"x\":-1}"}},
        {{"added_tokens.json", "{\"\":400}"}},
        {{"added_tokens.json", "{\"x\":2000000000}"}},
        {{"tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"a\"}}}"}},
        {{"tokenizer_config.json", "{\"added_tokens_decoder\":{\"400\":{}}}"}},
    };
    apr_error err = {0};
    apr_map map;

    (void)state;
    if (apr_map_open(&map, SENTENCEPIECE, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        assert_int_equal(read_files(files[i], &map, 0, &v, &arena, &err), APR_E_DAMAGED);
        assert_non_null(strstr(err.text, "token"));
        apr_arena_close(&arena);
    }
    apr_map_close(&map);
}

/* --- vocab.json and merges.txt --- */

#define VOCAB  "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}"
#define MERGES "#version: 0.2\na b\r\n\n"
#define QWEN2_REGEX                                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|" \
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define ADDED(id, text, special) "{\"id\":" id ",\"content\":\"" text "\",\"special\":" special "}"
#define WHOLE(normalizer, pre)                                                                                                   \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"added_tokens\":[" ADDED("3", "<|endoftext|>", "true") "," ADDED( \
        "4", "<|im_end|>", "true") "],\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[\"a b\"]}}"
#define SPLIT(regex)                                                                                \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
    "\"},\"behavior\":\"Isolated\"},{\"type\":"                                                     \
    "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"

static void two_files_say_what_one_says(void **state)
{
    static const struct {
        const char *config, *model_config, *whole, *pre;
    } cases[] = {
        {"{\"tokenizer_class\":\"Qwen2Tokenizer\",\"eos_token\":\"<|im_end|>\",\"pad_token\":\"<|endoftext|>\"}", "{}",
         WHOLE("{\"type\":\"NFC\"}", SPLIT(QWEN2_REGEX)), "qwen2"},
        {"{\"eos_token\":\"<|im_end|>\",\"pad_token\":\"<|endoftext|>\"}", "{\"model_type\":\"qwen3\"}",
         WHOLE("{\"type\":\"NFC\"}", SPLIT(QWEN2_REGEX)), "qwen2"},
        {"{\"tokenizer_class\":\"GPT2TokenizerFast\",\"eos_token\":\"<|im_end|>\",\"pad_token\":\"<|endoftext|>\"}", "{}",
         WHOLE("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"), "gpt-2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_vocab v, one;
        read_ok((file[MAX_FILES]){{"vocab.json", VOCAB},
                                  {"merges.txt", MERGES},
                                  {"added_tokens.json", "{\"<|im_end|>\":4}"},
                                  {"tokenizer_config.json", cases[i].config},
                                  {"config.json", cases[i].model_config}},
                NULL, 0, &v, &arena);
        read_ok((file[MAX_FILES]){{"tokenizer.json", cases[i].whole}, {"tokenizer_config.json", cases[i].config}}, NULL, 0, &one, &arena);
        assert_true(v.kind == APR_VOCAB_BPE && one.kind == APR_VOCAB_BPE);
        assert_true(v.n_tokens == 5 && one.n_tokens == 5 && v.n_merges == 1 && one.n_merges == 1);
        for (size_t id = 0; id < 5; id++) assert_true(apr_str_is(v.tokens[id], one.tokens[id].text));
        assert_memory_equal(v.types, one.types, 5);
        assert_memory_equal(v.added, one.added, 5);
        assert_true(apr_str_is(v.merges[0], "a") && apr_str_is(v.merges[1], "b"));
        assert_string_equal(v.pre, cases[i].pre);
        assert_string_equal(one.pre, cases[i].pre);
        assert_true(v.nfc == one.nfc && v.eos_id == 4 && one.eos_id == 4 && v.pad_id == 3 && v.n_stop_ids == 1);
        apr_arena_close(&arena);
    }
}

static void classes_that_are_not_known_are_named(void **state)
{
    apr_arena arena = {0};
    apr_vocab v;

    (void)state;
    read_ok((file[MAX_FILES]){{"vocab.json", VOCAB},
                              {"merges.txt", MERGES},
                              {"tokenizer_config.json", "{\"tokenizer_class\":\"CTRLTokenizer\"}"}},
            NULL, 0, &v, &arena);
    assert_int_equal(v.kind, APR_VOCAB_NONE);
    assert_non_null(strstr(v.unsupported, "CTRLTokenizer"));
    read_ok((file[MAX_FILES]){{"vocab.json", VOCAB},
                              {"merges.txt", MERGES},
                              {"tokenizer_config.json", "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true}"}},
            NULL, 0, &v, &arena);
    assert_int_equal(v.kind, APR_VOCAB_BPE);
    assert_int_equal(v.n_splits, 1);
    assert_int_equal(v.splits[0].space, APR_SPACE_ALWAYS);
    assert_true(apr_vocab_needs_file(&v));
    apr_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_tokens_come_after_the_pieces),
        cmocka_unit_test(added_tokens_without_an_id_are_refused),
        cmocka_unit_test(two_files_say_what_one_says),
        cmocka_unit_test(classes_that_are_not_known_are_named),
    };
    return cmocka_run_group_tests_name("hf_tokenizer_slow", tests, NULL, NULL);
}
