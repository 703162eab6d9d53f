/* formats/vocab/spm_scores.h: scores that say what merges say, and the word when there are none. */
#include "formats/base/json.h"
#include "formats/files/map.h"
#include "formats/vocab/spm_scores.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/support/work_folder.h"

enum { MAX_TOKENS = 32, MAX_MERGES = 24, MAX_TEXT = 7, N_LETTERS = 3 };

/* A vocabulary over a, b, c whose tokens and merges chance has made. */
typedef struct toy {
    char texts[MAX_TOKENS][16];
    apr_str tokens[MAX_TOKENS], merges[2 * MAX_MERGES];
    uint8_t types[MAX_TOKENS];
    apr_vocab vocab;
} toy;

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

static size_t token_of(const toy *t, const char *text)
{
    size_t id = 0;
    while (id < t->vocab.n_tokens && strcmp(t->texts[id], text) != 0) id++;
    return id;
}

static void make_toy(toy *t, uint32_t *seed)
{
    const size_t n_merges = 2 + draw(seed, 8);

    *t = (toy){.vocab = {.kind = APR_VOCAB_SPM, .byte_fallback = true, .bos_id = -1, .eos_id = -1, .pad_id = -1, .unk_id = -1}};
    t->vocab.n_tokens = N_LETTERS;
    for (int i = 0; i < N_LETTERS; i++) t->texts[i][0] = (char)('a' + i);
    while (t->vocab.n_merges < n_merges) {
        const size_t left = draw(seed, (uint32_t)t->vocab.n_tokens), right = draw(seed, (uint32_t)t->vocab.n_tokens);
        char both[33];
        snprintf(both, sizeof both, "%s%s", t->texts[left], t->texts[right]);
        if (strlen(both) > 6) continue;
        const size_t id = token_of(t, both);
        if (id == t->vocab.n_tokens) strcpy(t->texts[t->vocab.n_tokens++], both);
        t->merges[2 * t->vocab.n_merges] = apr_str_of(t->texts[left]);
        t->merges[2 * t->vocab.n_merges++ + 1] = apr_str_of(t->texts[right]);
    }
    for (size_t id = 0; id < t->vocab.n_tokens; id++) t->tokens[id] = apr_str_of(t->texts[id]);
    memset(t->types, APR_TOKEN_NORMAL, sizeof t->types);
    t->vocab.tokens = t->tokens;
    t->vocab.types = t->types;
    t->vocab.merges = t->merges;
}

static bool same_ids(const apr_tokenizer *a, const apr_tokenizer *b, const char *text, size_t n)
{
    const apr_encode_options options = {.parse_special = true};
    int32_t *x = NULL, *y = NULL;
    size_t n_x = 0, n_y = 0;
    apr_error err = {0};

    if (apr_tokenizer_encode(a, text, n, &options, &x, &n_x, &err) != APR_OK ||
        apr_tokenizer_encode(b, text, n, &options, &y, &n_y, &err) != APR_OK)
        fail_msg("%s", err.text);
    const bool same = n_x == n_y && (n_x == 0 || memcmp(x, y, n_x * sizeof *x) == 0);
    free(x);
    free(y);
    return same;
}

static apr_tokenizer *open_tokenizer(const apr_vocab *vocab)
{
    apr_error err = {0};
    apr_tokenizer *tokenizer;
    if (apr_tokenizer_open(&tokenizer, vocab, &err) != APR_OK) fail_msg("%s", err.text);
    return tokenizer;
}

/* Every text of up to MAX_TEXT letters: do scores give what merges give? */
static bool all_texts_agree(const apr_vocab *merged, const apr_vocab *scored)
{
    apr_tokenizer *const a = open_tokenizer(merged), *const b = open_tokenizer(scored);
    bool agree = true;

    for (int length = 1, n_texts = N_LETTERS; length <= MAX_TEXT && agree; length++, n_texts *= N_LETTERS)
        for (int code = 0; code < n_texts && agree; code++) {
            char text[MAX_TEXT];
            for (int i = 0, rest = code; i < length; i++, rest /= N_LETTERS) text[i] = (char)('a' + rest % N_LETTERS);
            agree = same_ids(a, b, text, (size_t)length);
        }
    apr_tokenizer_close(a);
    apr_tokenizer_close(b);
    return agree;
}

/* The claim of the header, held against all short texts of random vocabularies, both ways. */
static void scores_say_what_merges_say_or_a_token_is_named(void **state)
{
    uint32_t seed = 1;
    int n_exact = 0, n_inexact = 0;

    (void)state;
    for (int round = 0; round < 150; round++) {
        apr_arena arena = {0};
        apr_spm_scores made;
        apr_error err = {0};
        toy t;
        make_toy(&t, &seed);
        assert_int_equal(apr_spm_scores_make(&t.vocab, &arena, &made, &err), APR_OK);
        assert_int_equal(made.bad_merge, -1);
        apr_vocab scored = t.vocab;
        scored.n_merges = 0;
        scored.scores = made.scores;
        if (made.inexact < 0) {
            assert_true(all_texts_agree(&t.vocab, &scored));
            n_exact++;
        } else { /* the text of that token is the proof */
            const apr_str text = t.tokens[made.inexact];
            apr_tokenizer *const a = open_tokenizer(&t.vocab), *const b = open_tokenizer(&scored);
            assert_false(same_ids(a, b, text.text, text.n_bytes));
            apr_tokenizer_close(a);
            apr_tokenizer_close(b);
            n_inexact++;
        }
        apr_arena_close(&arena);
    }
    print_message("%d vocabularies exact, %d not\n", n_exact, n_inexact);
    assert_true(n_exact > 20 && n_inexact > 20);
}

/* --- SentencePiece's own --- */

static cJSON *read_json(const char *path)
{
    apr_map map;
    cJSON *json;
    assert_int_equal(apr_map_open(&map, path, NULL), APR_OK);
    assert_int_equal(apr_json_parse(&json, map.data, map.n_bytes, path, NULL), APR_OK);
    apr_map_close(&map);
    return json;
}

/* The tokens that SentencePiece learned: out of the merges that the tokenizers library made of its scores come the scores again. */
static void the_scores_of_sentencepiece_come_back(void **state)
{
    cJSON *const json = read_json("tests/data/tokenizer/spm.json");
    const cJSON *const pieces = apr_json_get(json, "pieces"), *const types = apr_json_get(json, "types"),
                       *const scores = apr_json_get(json, "scores"), *const merges = apr_json_get(json, "hf_merges"), *item;
    apr_arena arena = {0};
    apr_vocab v = {.kind = APR_VOCAB_SPM, .n_tokens = (size_t)cJSON_GetArraySize(pieces)};
    apr_str *const tokens = apr_arena_array(&arena, v.n_tokens, sizeof *tokens);
    uint8_t *const kinds = apr_arena_alloc(&arena, v.n_tokens);
    apr_str *const pairs = apr_arena_array(&arena, 2 * (size_t)cJSON_GetArraySize(merges), sizeof *pairs);
    apr_spm_scores made;
    size_t n = 0, n_learned = 0;

    (void)state;
    cJSON_ArrayForEach(item, pieces) tokens[n++] = apr_str_of(item->valuestring);
    n = 0;
    cJSON_ArrayForEach(item, types) kinds[n++] = (uint8_t)item->valueint;
    cJSON_ArrayForEach(item, merges)
    {
        const char *const space = strchr(item->valuestring, ' ');
        pairs[2 * v.n_merges] = (apr_str){item->valuestring, (size_t)(space - item->valuestring)};
        pairs[2 * v.n_merges++ + 1] = apr_str_of(space + 1);
    }
    v.tokens = tokens;
    v.types = kinds;
    v.merges = pairs;
    assert_int_equal(apr_spm_scores_make(&v, &arena, &made, NULL), APR_OK);
    assert_int_equal(made.inexact, -1);
    n = 0;
    cJSON_ArrayForEach(item, scores)
    {
        if (kinds[n] == APR_TOKEN_NORMAL) {
            assert_true(made.scores[n] == (float)item->valuedouble);
            n_learned++;
        }
        n++;
    }
    assert_true(n_learned > 300);
    apr_arena_close(&arena);
    cJSON_Delete(json);
}

static void merges_of_unknown_tokens_are_named(void **state)
{
    static const apr_str tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}}, merges[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"x", 1}};
    const apr_vocab v = {.kind = APR_VOCAB_SPM, .n_tokens = 3, .tokens = tokens, .n_merges = 2, .merges = merges};
    apr_arena arena = {0};
    apr_spm_scores made;

    (void)state;
    assert_int_equal(apr_spm_scores_make(&v, &arena, &made, NULL), APR_OK);
    assert_int_equal(made.bad_merge, 1);
    assert_int_equal(made.inexact, -1);
    apr_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_say_what_merges_say_or_a_token_is_named),
        cmocka_unit_test(the_scores_of_sentencepiece_come_back),
        cmocka_unit_test(merges_of_unknown_tokens_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
