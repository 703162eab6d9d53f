/* tokenizer_fixture.h - vocabularies from tests/data for the tokenizer's tests, and checks of ids against lists in JSON. */
#ifndef APR_TESTS_TOKENIZER_FIXTURE_H
#define APR_TESTS_TOKENIZER_FIXTURE_H

#include "formats/base/json.h"
#include "formats/files/map.h"
#include "runtime/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static inline cJSON *read_json(const char *path)
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

static inline void add_tokens(fixture *f, const cJSON *list)
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

static inline fixture open_qwen2(void)
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

static inline void close_fixture(fixture *f)
{
    cJSON_Delete(f->json);
    free(f->tokens);
    free(f->merges);
    free(f->types);
    free(f->added);
}

static inline apr_tokenizer *open_tokenizer(const apr_vocab *vocab)
{
    apr_tokenizer *tokenizer;
    apr_error err = {0};
    if (apr_tokenizer_open(&tokenizer, vocab, &err) != APR_OK) fail_msg("%s", err.text);
    return tokenizer;
}

/* ---- checking ---- */

static const apr_encode_options parsed = {.parse_special = true}, plain = {0}, with_special = {.add_special = true, .parse_special = true};

/* `text` is copied to a block of its exact size, so that reading past it is seen. */
static inline void encode_bytes(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes, const apr_encode_options *options,
                                int32_t **ids, size_t *n_ids)
{
    apr_error err = {0};
    char *const exact = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(exact);
    if (n_bytes > 0) memcpy(exact, text, n_bytes);
    if (apr_tokenizer_encode(tokenizer, exact, n_bytes, options, ids, n_ids, &err) != APR_OK) fail_msg("\"%.60s\": %s", text, err.text);
    assert_non_null(*ids);
    free(exact);
}

static inline void check_ids(const char *what, const char *text, const int32_t *ids, size_t n_ids, const cJSON *expected)
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

static inline void check_decoded(const apr_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, bool show_special, const char *expected)
{
    char *text;
    size_t n_bytes;
    assert_int_equal(apr_tokenizer_decode(tokenizer, ids, n_ids, show_special, &text, &n_bytes, NULL), APR_OK);
    assert_string_equal(text, expected);
    assert_int_equal(n_bytes, strlen(expected));
    free(text);
}

/* texts[i] must become ids[i]; and those ids the text again, when back is not NULL. */
static inline void check_texts(const char *what, const apr_tokenizer *tokenizer, const apr_encode_options *options, const cJSON *texts,
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

/* ---- SentencePiece ---- */

typedef struct pieces {
    cJSON *json;
    apr_str tokens[600], merges[4096];
    float scores[600];
    uint8_t types[600];
    apr_vocab vocab;
} pieces;

static inline void open_pieces(pieces *p)
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

#endif
