/* test_tokenizer.c - ids against Hugging Face's tokenizers and Google's sentencepiece. */
#include "formats/base/crc32.h"
#include "formats/gguf/gguf.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"
#include "tests/support/tokenizer_fixture.h"

#include <stdio.h>
#include <unistd.h>

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

typedef apr_status (*open_fn)(apr_model *, const char *, apr_error *);

static void check_golden_ids(open_fn open, const char *path, const char *golden_path)
{
    cJSON *const golden = read_json(golden_path);
    apr_model model = {0};
    apr_error err = {0};
    const cJSON *prompt;

    if (open(&model, path, &err) != APR_OK) fail_msg("%s", err.text);
    apr_tokenizer *const tokenizer = open_tokenizer(&model.vocab);
    assert_true(cJSON_GetArraySize(apr_json_get(golden, "prompts")) >= 4);
    cJSON_ArrayForEach(prompt, apr_json_get(golden, "prompts"))
    {
        const char *const rendered = apr_json_get_string(prompt, "rendered");
        int32_t *ids;
        size_t n_ids = 0;
        encode_bytes(tokenizer, rendered, strlen(rendered), &parsed, &ids, &n_ids);
        check_ids(path, rendered, ids, n_ids, apr_json_get(prompt, "ids"));
        free(ids);
    }
    assert_true(apr_tokenizer_is_stop(tokenizer, model.vocab.eos_id));
    apr_tokenizer_close(tokenizer);
    apr_model_close(&model);
    cJSON_Delete(golden);
}

/* One model, written as a folder and as GGUF: the readers must agree with transformers, and so with each other. */
static void the_readers_vocabularies_give_the_golden_ids(void **state)
{
    (void)state;
    check_golden_ids(apr_safetensors_open, "tests/data/tiny-qwen2", "tests/data/tiny-qwen2/golden.json");
    check_golden_ids(apr_gguf_open, "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf", "tests/data/tiny-qwen2/golden.json");
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

/* tests/data/tokenizer/added-normalized.json: what the tokenizers library makes of added tokens with "normalized": true, which see the
 * work of Prepend and Replace but not that of Metaspace. */
static void added_tokens_are_found_in_normalised_text(void **state)
{
    (void)state;
    cJSON *const golden = read_json("tests/data/tokenizer/added-normalized.json");
    const cJSON *one;

    cJSON_ArrayForEach(one, golden)
    {
        char *const text = cJSON_PrintUnformatted(apr_json_get(one, "tokenizer"));
        const apr_attachment file = {"tokenizer.json", (const uint8_t *)text, strlen(text)};
        const apr_model model = {.path = "test", .attachments = &file, .n_attachments = 1};
        apr_arena arena = {0};
        apr_error err = {0};
        apr_vocab vocab;
        if (apr_hf_vocab_read(&model, &vocab, &arena, &err) != APR_OK) fail_msg("%s", err.text);
        apr_tokenizer *const tokenizer = open_tokenizer(&vocab);
        check_texts(apr_json_get_string(one, "name"), tokenizer, &parsed, apr_json_get(one, "texts"), apr_json_get(one, "ids"), NULL);
        apr_tokenizer_close(tokenizer);
        apr_arena_close(&arena);
        free(text);
    }
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

/* U+00A0 is the bytes c2 a0, letters U+00C2 and U+0142. Only where it is a space is it separate from the "a". */
static void spaces_of_a_pattern_are_those_of_unicode(void **state)
{
    (void)state;
    const apr_str tokens[] = {{"\xc3\x82", 2}, {"\xc5\x82", 2}, {"a", 1}, {"\xc5\x82\x61", 3}};
    const apr_str merge[] = {tokens[1], tokens[2]};
    const apr_vocab vocab = {.kind = APR_VOCAB_BPE,
                             .n_tokens = COUNT(tokens),
                             .tokens = tokens,
                             .n_merges = 1,
                             .merges = merge,
                             .pattern = "\\s|\\S+",
                             .unk_id = -1};
    apr_tokenizer *const tokenizer = open_tokenizer(&vocab);
    int32_t *ids;
    size_t n_ids = 0;
    encode_bytes(tokenizer,
                 "\xc2\xa0"
                 "a",
                 3, &plain, &ids, &n_ids);
    assert_int_equal(n_ids, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(ids[i], i);
    check_decoded(tokenizer, ids, n_ids, true,
                  "\xc2\xa0"
                  "a");
    free(ids);
    apr_tokenizer_close(tokenizer);
}

/* A vocabulary as GGUF gives it has no flags: the types say which tokens are added. */
static void types_replace_flags_and_bos_and_eos_are_added(void **state)
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
    apr_tokenizer *tokenizer = open_tokenizer(&p.vocab);
    check_texts("spm merges", tokenizer, &plain, apr_json_get(p.json, "hf_texts"), apr_json_get(p.json, "hf_ids"),
                apr_json_get(p.json, "hf_decoded"));
    apr_tokenizer_close(tokenizer);
    p.vocab.space_after_added = true;
    tokenizer = open_tokenizer(&p.vocab);
    check_texts("spm prepend", tokenizer, &parsed, apr_json_get(p.json, "hf_added_texts"), apr_json_get(p.json, "hf_added_ids"), NULL);
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

static void many_spaces_come_back(void **state)
{
    (void)state;
    pieces p;
    size_t n_bytes, n_ids = 0;
    int32_t *ids;
    open_pieces(&p);
    apr_tokenizer *const tokenizer = open_tokenizer(&p.vocab);
    char *const text = repeat(" ", 5000, &n_bytes), *back;
    encode_bytes(tokenizer, text, n_bytes, &plain, &ids, &n_ids);
    assert_int_equal(apr_tokenizer_decode(tokenizer, ids, n_ids, false, &back, &n_bytes, NULL), APR_OK);
    assert_int_equal(n_bytes, 5000);
    assert_memory_equal(back, text, 5000);
    free(back);
    free(ids);
    free(text);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_prompts_of_the_bundled_model_encode_and_decode),
        cmocka_unit_test(the_readers_vocabularies_give_the_golden_ids),
        cmocka_unit_test(seven_splitting_rules_agree_with_tokenizers_on_hard_texts),
        cmocka_unit_test(added_tokens_follow_their_flags),
        cmocka_unit_test(added_tokens_are_found_in_normalised_text),
        cmocka_unit_test(long_runs_agree_with_tokenizers),
        cmocka_unit_test(tokens_give_their_bytes_and_stops_are_known),
        cmocka_unit_test(spaces_of_a_pattern_are_those_of_unicode),
        cmocka_unit_test(types_replace_flags_and_bos_and_eos_are_added),
        cmocka_unit_test(scores_agree_with_sentencepiece),
        cmocka_unit_test(merges_with_byte_fallback_agree_with_tokenizers),
        cmocka_unit_test(only_the_start_of_the_text_gets_a_space),
        cmocka_unit_test(many_spaces_come_back),
        cmocka_unit_test(without_bytes_a_run_of_unknown_text_is_one_unknown_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
