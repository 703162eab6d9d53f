/* apr_meta_vocab.c - writes and reads the tokenizer in an APR file's metadata. */
#include "formats/vocab/apr_meta_vocab.h"
#include "formats/base/base64.h"
#include "formats/base/text.h"
#include "formats/vocab/gguf_vocab.h"
#include "formats/vocab/hf_tokenizer.h"
#include "formats/vocab/special_tokens.h"

#include <stdlib.h>
#include <string.h>

/* The bools of the vocabulary rules, in the order of the file. */
static const struct {
    const char *key;
    size_t offset;
    bool only_true; /* left out where it is false */
} rules[] = {
    {"prefix_unless_space", offsetof(apr_vocab, prefix_unless_space), .only_true = true},
    {"nfc", offsetof(apr_vocab, nfc)},
    {"ignore_merges", offsetof(apr_vocab, ignore_merges)},
    {"byte_fallback", offsetof(apr_vocab, byte_fallback)},
    {"add_space_prefix", offsetof(apr_vocab, add_space_prefix)},
    {"escape_spaces", offsetof(apr_vocab, escape_spaces)},
    {"add_eos", offsetof(apr_vocab, add_eos)},
    {"space_after_added", offsetof(apr_vocab, space_after_added), .only_true = true},
};
enum { N_RULES = sizeof rules / sizeof *rules };

/* --- writing --- */

/* True if the text "left right" splits into the same two sides again. */
static bool is_plain_merge(const apr_str *pair)
{
    for (int i = 0; i < 2; i++)
        if (pair[i].n_bytes == 0 || !apr_meta_is_text(pair[i]) || memchr(pair[i].text, ' ', pair[i].n_bytes) != NULL) return false;
    return true;
}

static void write_token(apr_json_text *out, apr_str token)
{
    if (apr_meta_is_text(token)) apr_json_string(out, NULL, token.text, token.n_bytes);
    else apr_json_string(out, NULL, "\xef\xbf\xbd", 3); /* for other readers; raw_tokens has the bytes */
}

static void write_merge(apr_json_text *out, const apr_str *pair)
{
    char few[256];
    const size_t n = pair[0].n_bytes + 1 + pair[1].n_bytes;
    char *const text = n <= sizeof few ? few : malloc(n);

    if (text == NULL || !apr_meta_is_text(pair[0]) || !apr_meta_is_text(pair[1])) {
        out->failed |= text == NULL;
        apr_json_string(out, NULL, "\xef\xbf\xbd", 3);
    } else {
        if (pair[0].n_bytes > 0) memcpy(text, pair[0].text, pair[0].n_bytes);
        text[pair[0].n_bytes] = ' ';
        if (pair[1].n_bytes > 0) memcpy(text + pair[0].n_bytes + 1, pair[1].text, pair[1].n_bytes);
        apr_json_string(out, NULL, text, n);
    }
    if (text != few) free(text);
}

/* key NULL: there is none */
static void write_id(apr_json_text *out, const char *key, int32_t id)
{
    if (key != NULL && id >= 0) apr_json_int(out, key, id);
}

static void write_lists(apr_json_text *out, const apr_vocab *vocab)
{
    apr_json_open(out, "tokenizer.vocabulary", '[');
    for (size_t i = 0; i < vocab->n_tokens; i++) write_token(out, vocab->tokens[i]);
    apr_json_close(out, ']');
    if (vocab->types != NULL) {
        apr_json_open(out, "tokenizer.token_type", '[');
        for (size_t i = 0; i < vocab->n_tokens; i++) apr_json_int(out, NULL, vocab->types[i]);
        apr_json_close(out, ']');
    }
    if (vocab->scores != NULL) {
        apr_json_open(out, "tokenizer.scores", '[');
        for (size_t i = 0; i < vocab->n_tokens; i++) apr_json_real(out, NULL, (double)vocab->scores[i]);
        apr_json_close(out, ']');
    }
    if (vocab->n_merges > 0) {
        apr_json_open(out, "tokenizer.merges", '[');
        for (size_t i = 0; i < vocab->n_merges; i++) write_merge(out, &vocab->merges[2 * i]);
        apr_json_close(out, ']');
    }
}

void apr_meta_write_vocab(apr_json_text *out, const apr_vocab *vocab)
{
    const bool spm = vocab->kind == APR_VOCAB_SPM;

    if (vocab->chat_template != NULL) {
        apr_json_cstring(out, "chat_template", vocab->chat_template);
        apr_json_cstring(out, "tokenizer.chat_template", vocab->chat_template);
    }
    if (vocab->kind == APR_VOCAB_NONE || apr_vocab_needs_file(vocab)) return;
    apr_json_cstring(out, "tokenizer.model", spm ? "llama" : "gpt2");
    apr_json_cstring(out, "tokenizer.model_type", spm ? "llama" : "bpe");
    if (vocab->pre != NULL) apr_json_cstring(out, "tokenizer.pre_type", vocab->pre);
    apr_json_uint(out, "tokenizer.vocab_size", vocab->n_tokens);
    for (size_t i = 0; i < APR_N_SPECIALS; i++) write_id(out, apr_special_tokens[i].apr_key, apr_special_id_of(vocab, i));
    apr_json_bool(out, "tokenizer.add_bos_token", vocab->add_bos);
    write_lists(out, vocab);
}

static void write_base64(apr_json_text *out, apr_str s)
{
    const size_t n = apr_base64_chars(s.n_bytes);
    char *const text = malloc(n + 1);
    if (text == NULL) {
        out->failed = true;
        return;
    }
    apr_base64_encode(s.text, s.n_bytes, text);
    apr_json_string(out, NULL, text, n);
    free(text);
}

/* Tokens and merges that JSON strings cannot hold, as [id, bytes, ...] and [rank, left, right, ...]. */
static void write_raw(apr_json_text *out, const apr_vocab *vocab)
{
    bool any = false;
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        if (apr_meta_is_text(vocab->tokens[i])) continue;
        if (!any) apr_json_open(out, "raw_tokens", '[');
        any = true;
        apr_json_uint(out, NULL, i);
        write_base64(out, vocab->tokens[i]);
    }
    if (any) apr_json_close(out, ']');

    any = false;
    for (size_t i = 0; i < vocab->n_merges; i++) {
        if (is_plain_merge(&vocab->merges[2 * i])) continue;
        if (!any) apr_json_open(out, "raw_merges", '[');
        any = true;
        apr_json_uint(out, NULL, i);
        write_base64(out, vocab->merges[2 * i]);
        write_base64(out, vocab->merges[2 * i + 1]);
    }
    if (any) apr_json_close(out, ']');
}

/* Writes one line of text for each splitting step. */
static void write_splits(apr_json_text *out, const apr_vocab *vocab)
{
    apr_arena arena = {0};

    if (vocab->n_splits == 0) return;
    apr_json_open(out, "splits", '[');
    for (size_t i = 0; i < vocab->n_splits; i++) {
        const char *const line = apr_split_print(&vocab->splits[i], &arena);
        if (line == NULL) out->failed = true;
        else apr_json_cstring(out, NULL, line);
    }
    apr_json_close(out, ']');
    apr_arena_close(&arena);
}

void apr_meta_write_vocab_rules(apr_json_text *out, const apr_vocab *vocab)
{
    if (vocab->kind == APR_VOCAB_NONE) return;
    apr_json_open(out, "vocab", '{');
    if (apr_vocab_needs_file(vocab)) { /* attached files or a GGUF's keys hold the vocabulary */
        apr_json_bool(out, "attached", true);
        apr_json_close(out, '}');
        return;
    }
    if (vocab->pattern != NULL) apr_json_cstring(out, "pattern", vocab->pattern);
    write_splits(out, vocab);
    for (size_t i = 0; i < N_RULES; i++) {
        const bool value = *(const bool *)((const char *)vocab + rules[i].offset);
        if (value || !rules[i].only_true) apr_json_bool(out, rules[i].key, value);
    }
    write_id(out, "unk_id", vocab->unk_id);
    apr_json_open(out, "stop_ids", '[');
    for (size_t i = 0; i < vocab->n_stop_ids; i++) apr_json_int(out, NULL, vocab->stop_ids[i]);
    apr_json_close(out, ']');
    if (vocab->added != NULL) { /* sparse, because few tokens are added: [id, flags, ...] */
        apr_json_open(out, "added", '[');
        for (size_t i = 0; i < vocab->n_tokens; i++) {
            if (vocab->added[i] == 0) continue;
            apr_json_uint(out, NULL, i);
            apr_json_int(out, NULL, vocab->added[i]);
        }
        apr_json_close(out, ']');
    }
    write_raw(out, vocab);
    apr_json_close(out, '}');
}

/* --- reading --- */

/* The standard keys as arrays; absent ones are NULL. */
typedef struct lists {
    size_t n_tokens, n_merges;
    apr_str *tokens, *merges; /* merges: "left right" */
    int32_t *types;
    float *scores;
} lists;

/* *copy of a NULL text is NULL. */
static apr_status copy_text(apr_model *model, const char *text, const char **copy, const char *what, apr_error *err)
{
    *copy = text != NULL ? apr_arena_copy(&model->arena, text, strlen(text)) : NULL;
    return text == NULL || *copy != NULL ? APR_OK : apr_no_memory(err, what);
}

/* Copies all strings of an array into one allocation. An absent or null array gives none. */
static apr_status read_strings(apr_model *model, const cJSON *root, const char *key, apr_str **strings, size_t *n_strings, apr_error *err)
{
    const cJSON *const array = apr_json_get(root, key), *item;
    size_t n = 0, n_bytes = 0, i = 0;

    *n_strings = 0;
    if (array == NULL || cJSON_IsNull(array)) return APR_OK;
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsString(item)) return apr_meta_malformed(model, err, key);
        n++;
        n_bytes += strlen(item->valuestring) + 1;
    }
    if (!cJSON_IsArray(array)) return apr_meta_malformed(model, err, key);
    char *block = apr_arena_alloc(&model->arena, n_bytes);
    *strings = apr_arena_array(&model->arena, n, sizeof **strings);
    if (block == NULL || *strings == NULL) return apr_no_memory(err, "the vocabulary");
    cJSON_ArrayForEach(item, array)
    {
        const size_t length = strlen(item->valuestring);
        memcpy(block, item->valuestring, length);
        (*strings)[i++] = (apr_str){block, length};
        block += length + 1;
    }
    *n_strings = n;
    return APR_OK;
}

static apr_status read_types(apr_model *model, const cJSON *array, lists *l, apr_error *err)
{
    const cJSON *item;
    size_t n = 0;

    if (array == NULL || cJSON_IsNull(array)) return APR_OK;
    l->types = apr_arena_array(&model->arena, l->n_tokens, sizeof *l->types);
    if (l->types == NULL) return apr_no_memory(err, "the vocabulary");
    cJSON_ArrayForEach(item, array)
    {
        int64_t type;
        if (n == l->n_tokens || !apr_json_as_int(item, &type) || type < 0 || type > 255)
            return apr_meta_malformed(model, err, "tokenizer.token_type");
        l->types[n++] = (int32_t)type;
    }
    return n == l->n_tokens ? APR_OK : apr_meta_malformed(model, err, "tokenizer.token_type");
}

static apr_status read_scores(apr_model *model, const cJSON *array, lists *l, apr_error *err)
{
    const cJSON *item;
    size_t n = 0;

    if (array == NULL || cJSON_IsNull(array)) return APR_OK;
    l->scores = apr_arena_array(&model->arena, l->n_tokens, sizeof *l->scores);
    if (l->scores == NULL) return apr_no_memory(err, "the vocabulary");
    cJSON_ArrayForEach(item, array)
    {
        const bool in_range = cJSON_IsNumber(item) && item->valuedouble > -3e38 && item->valuedouble < 3e38;
        if (n == l->n_tokens || (!in_range && !cJSON_IsNull(item))) return apr_meta_malformed(model, err, "tokenizer.scores");
        l->scores[n++] = in_range ? (float)item->valuedouble : 0.0f;
    }
    return n == l->n_tokens ? APR_OK : apr_meta_malformed(model, err, "tokenizer.scores");
}

static apr_status read_lists(apr_model *model, const cJSON *root, lists *l, apr_error *err)
{
    APR_TRY(read_strings(model, root, "tokenizer.vocabulary", &l->tokens, &l->n_tokens, err));
    if (l->n_tokens > INT32_MAX) return apr_meta_malformed(model, err, "tokenizer.vocabulary");
    APR_TRY(read_strings(model, root, "tokenizer.merges", &l->merges, &l->n_merges, err));
    APR_TRY(read_types(model, apr_json_get(root, "tokenizer.token_type"), l, err));
    return read_scores(model, apr_json_get(root, "tokenizer.scores"), l, err);
}

/* realizar's rule. The older key uses ggml's names, where "gpt2" is byte-level BPE. */
static bool is_spm(const cJSON *root, const lists *l)
{
    static const char *const names[] = {"llama", "unigram", "spm", "sentencepiece"};
    const char *const keys[] = {"tokenizer.model_type", "tokenizer.model"};

    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *const value = apr_json_get_string(root, keys[k]);
        for (size_t i = 0; value != NULL && i < sizeof names / sizeof *names; i++)
            if (strcmp(value, names[i]) == 0) return true;
        if (value != NULL) return false;
    }
    return l->n_merges == 0 && l->scores != NULL;
}

/* key NULL: there is none */
static int32_t read_id(const cJSON *object, const char *key, size_t n_tokens)
{
    int64_t id;
    return key != NULL && apr_json_get_int(object, key, &id) && id >= 0 && (uint64_t)id < n_tokens ? (int32_t)id : -1;
}

/* --- files written by aprkit --- */

static bool decode_text(apr_model *model, const cJSON *item, apr_str *s)
{
    if (!cJSON_IsString(item)) return false;
    const size_t n_chars = strlen(item->valuestring), n = apr_base64_bytes(item->valuestring, n_chars);
    char *const bytes = apr_arena_alloc(&model->arena, n + 1);
    if (bytes == NULL || !apr_base64_decode(item->valuestring, n_chars, bytes)) return false;
    *s = (apr_str){bytes, n};
    return true;
}

/* Reads [index, text, ...] with n_texts texts for each index into items[index * n_texts]. */
static apr_status read_raw(apr_model *model, const cJSON *rules_json, const char *key, apr_str *items, size_t n_items, size_t n_texts,
                           apr_error *err)
{
    const cJSON *const array = apr_json_get(rules_json, key);
    const cJSON *item = cJSON_IsArray(array) ? array->child : NULL;

    while (item != NULL) {
        int64_t index;
        if (!apr_json_as_int(item, &index) || index < 0 || (uint64_t)index >= n_items) return apr_meta_malformed(model, err, key);
        item = item->next;
        for (size_t i = 0; i < n_texts; i++, item = item->next)
            if (item == NULL || !decode_text(model, item, &items[(size_t)index * n_texts + i])) return apr_meta_malformed(model, err, key);
    }
    return APR_OK;
}

static apr_status read_merges(apr_model *model, const cJSON *rules_json, const lists *l, apr_vocab *vocab, apr_error *err)
{
    apr_str *const pairs = apr_arena_array(&model->arena, l->n_merges, 2 * sizeof *pairs);

    if (pairs == NULL) return apr_no_memory(err, "the merges");
    for (size_t i = 0; i < l->n_merges; i++) {
        const apr_str merge = l->merges[i];
        const char *const space = memchr(merge.text, ' ', merge.n_bytes);
        if (space == NULL) continue; /* stored in raw_merges */
        const size_t n_left = (size_t)(space - merge.text);
        pairs[2 * i] = (apr_str){merge.text, n_left};
        pairs[2 * i + 1] = (apr_str){space + 1, merge.n_bytes - n_left - 1};
    }
    APR_TRY(read_raw(model, rules_json, "raw_merges", pairs, l->n_merges, 2, err));
    for (size_t i = 0; i < l->n_merges; i++)
        if (pairs[2 * i].text == NULL) return apr_meta_malformed(model, err, "tokenizer.merges");
    vocab->merges = pairs;
    vocab->n_merges = l->n_merges;
    return APR_OK;
}

static apr_status read_added(apr_model *model, const cJSON *rules_json, apr_vocab *vocab, apr_error *err)
{
    const cJSON *const array = apr_json_get(rules_json, "added");
    uint8_t *const added = cJSON_IsArray(array) ? apr_arena_alloc(&model->arena, vocab->n_tokens) : NULL;

    if (!cJSON_IsArray(array)) return APR_OK;
    if (added == NULL) return apr_no_memory(err, "the vocabulary");
    for (const cJSON *item = array->child; item != NULL; item = item->next->next) {
        int64_t id, flags;
        if (!apr_json_as_int(item, &id) || !apr_vocab_has_id(vocab, id) || item->next == NULL || !apr_json_as_int(item->next, &flags) ||
            flags < 0 || flags > 255)
            return apr_meta_malformed(model, err, "aprkit.vocab.added");
        added[id] = (uint8_t)flags;
    }
    vocab->added = added;
    return APR_OK;
}

static apr_status read_splits(apr_model *model, const cJSON *rules_json, apr_vocab *vocab, apr_error *err)
{
    const cJSON *const lines = apr_json_get(rules_json, "splits"), *item;

    if (lines == NULL) return APR_OK;
    if (!cJSON_IsArray(lines) || cJSON_GetArraySize(lines) > APR_MAX_SPLITS) return apr_meta_malformed(model, err, "aprkit.vocab.splits");
    apr_split *const splits = apr_arena_array(&model->arena, APR_MAX_SPLITS, sizeof *splits);
    if (splits == NULL) return apr_no_memory(err, "the vocabulary");
    cJSON_ArrayForEach(item, lines)
    {
        if (!cJSON_IsString(item)) return apr_meta_malformed(model, err, "aprkit.vocab.splits");
        const char *text;
        APR_TRY(copy_text(model, item->valuestring, &text, "the vocabulary", err));
        if (!apr_split_parse(text, &splits[vocab->n_splits])) return apr_meta_malformed(model, err, "aprkit.vocab.splits");
        vocab->n_splits++;
    }
    vocab->splits = splits;
    return APR_OK;
}

static apr_status read_rules(apr_model *model, const cJSON *rules_json, apr_vocab *vocab, apr_error *err)
{
    const cJSON *item;

    for (size_t i = 0; i < N_RULES; i++) apr_json_get_bool(rules_json, rules[i].key, (bool *)((char *)vocab + rules[i].offset));
    vocab->unk_id = read_id(rules_json, "unk_id", vocab->n_tokens);
    cJSON_ArrayForEach(item, apr_json_get(rules_json, "stop_ids"))
    {
        int64_t id;
        if (!apr_json_as_int(item, &id) || !apr_vocab_has_id(vocab, id) || vocab->n_stop_ids == APR_MAX_STOP_IDS)
            return apr_meta_malformed(model, err, "aprkit.vocab.stop_ids");
        vocab->stop_ids[vocab->n_stop_ids++] = (int32_t)id;
    }
    APR_TRY(copy_text(model, apr_json_get_string(rules_json, "pattern"), &vocab->pattern, "the vocabulary", err));
    APR_TRY(read_splits(model, rules_json, vocab, err));
    return read_added(model, rules_json, vocab, err);
}

static apr_status read_own(apr_model *model, const cJSON *root, const cJSON *aprkit, const lists *l, apr_error *err)
{
    const cJSON *const rules_json = apr_json_get(aprkit, "vocab");
    apr_vocab *const vocab = &model->vocab;

    if (rules_json == NULL) return apr_meta_malformed(model, err, "aprkit.vocab");
    vocab->kind = is_spm(root, l) ? APR_VOCAB_SPM : APR_VOCAB_BPE;
    vocab->n_tokens = l->n_tokens;
    vocab->tokens = l->tokens;
    vocab->scores = l->scores;
    for (size_t i = 0; i < APR_N_SPECIALS; i++) *apr_special_id(vocab, i) = read_id(root, apr_special_tokens[i].apr_key, l->n_tokens);
    apr_json_get_bool(root, "tokenizer.add_bos_token", &vocab->add_bos);
    APR_TRY(copy_text(model, apr_json_get_string(root, "tokenizer.pre_type"), &vocab->pre, "the vocabulary", err));
    if (l->types != NULL) {
        uint8_t *const types = apr_arena_alloc(&model->arena, l->n_tokens);
        if (types == NULL) return apr_no_memory(err, "the vocabulary");
        for (size_t i = 0; i < l->n_tokens; i++) types[i] = (uint8_t)l->types[i];
        vocab->types = types;
    }
    APR_TRY(read_raw(model, rules_json, "raw_tokens", l->tokens, l->n_tokens, 1, err));
    APR_TRY(read_merges(model, rules_json, l, vocab, err));
    return read_rules(model, rules_json, vocab, err);
}

/* --- files written by other programs --- */

/* Guesses a token's type from its text, for writers that store no types. */
static int32_t guess_type(apr_str t, bool spm)
{
    const bool marked = t.n_bytes > 4 && memcmp(t.text, "<|", 2) == 0 && memcmp(t.text + t.n_bytes - 2, "|>", 2) == 0;

    if (marked) return APR_TOKEN_CONTROL;
    if (!spm) return APR_TOKEN_NORMAL;
    if (apr_str_is(t, "<unk>")) return APR_TOKEN_UNKNOWN;
    if (apr_str_is(t, "<s>") || apr_str_is(t, "</s>")) return APR_TOKEN_CONTROL;
    return t.n_bytes == 6 && memcmp(t.text, "<0x", 3) == 0 && t.text[5] == '>' ? APR_TOKEN_BYTE : APR_TOKEN_NORMAL;
}

/* The pre-tokenizer by architecture if the file names none, as in realizar. */
static const char *pre_of_architecture(const char *architecture)
{
    if (apr_begins_with(architecture, "qwen")) return "qwen2";
    return apr_begins_with(architecture, "llama") ? "llama-bpe" : NULL;
}

static apr_status set_list(apr_kv_list *kv, const char *key, apr_kv_type elem_type, const void *elems, size_t n, apr_error *err)
{
    return elems != NULL ? apr_gguf_put_array(kv, key, elem_type, elems, n, err) : APR_OK;
}

static apr_status set_text(apr_model *model, apr_kv_list *kv, const char *key, const char *text, apr_error *err)
{
    const char *copy;
    APR_TRY(copy_text(model, text, &copy, "the vocabulary", err));
    return copy != NULL ? apr_kv_set_string(kv, key, apr_str_of(copy), err) : APR_OK;
}

/* Builds the same lists under GGUF's keys: the GGUF reader knows the rules implied by "pre" and by the tokens' texts. */
static apr_status read_foreign(apr_model *model, const cJSON *root, lists *l, apr_error *err)
{
    apr_kv_list kv = {.arena = &model->arena};
    const bool spm = is_spm(root, l);
    const char *pre = apr_json_get_string(root, "tokenizer.pre_type"), *chat = apr_json_get_string(root, "chat_template");
    bool add_bos;

    if (l->types == NULL) {
        l->types = apr_arena_array(&model->arena, l->n_tokens, sizeof *l->types);
        if (l->types == NULL) return apr_no_memory(err, "the vocabulary");
        for (size_t i = 0; i < l->n_tokens; i++) l->types[i] = guess_type(l->tokens[i], spm);
    }
    if (pre == NULL && !spm) pre = pre_of_architecture(model->hparams.architecture);
    if (chat == NULL) chat = apr_json_get_string(root, "tokenizer.chat_template");
    APR_TRY(set_text(model, &kv, "tokenizer.ggml.model", spm ? "llama" : "gpt2", err));
    APR_TRY(set_text(model, &kv, "tokenizer.ggml.pre", pre, err));
    APR_TRY(set_text(model, &kv, "tokenizer.chat_template", chat, err));
    APR_TRY(set_list(&kv, "tokenizer.ggml.tokens", APR_KV_STRING, l->tokens, l->n_tokens, err));
    APR_TRY(set_list(&kv, "tokenizer.ggml.token_type", APR_KV_I32, l->types, l->n_tokens, err));
    APR_TRY(set_list(&kv, "tokenizer.ggml.scores", APR_KV_F32, l->scores, l->n_tokens, err));
    APR_TRY(set_list(&kv, "tokenizer.ggml.merges", APR_KV_STRING, l->merges, l->n_merges, err));
    for (size_t i = 0; i < APR_N_SPECIALS; i++) {
        const int32_t id = read_id(root, apr_special_tokens[i].apr_key, l->n_tokens);
        if (id >= 0) APR_TRY(apr_kv_set_int(&kv, apr_special_tokens[i].gguf_key, APR_KV_U32, id, err));
    }
    if (apr_json_get_bool(root, "tokenizer.add_bos_token", &add_bos))
        APR_TRY(apr_kv_set_bool(&kv, "tokenizer.ggml.add_bos_token", add_bos, err));
    return apr_gguf_vocab(&kv, &model->vocab, &model->arena, model->path, err);
}

apr_status apr_meta_read_vocab(apr_model *model, const cJSON *root, const cJSON *aprkit, apr_error *err)
{
    const char *const chat = apr_json_get_string(root, "chat_template");
    apr_vocab *const vocab = &model->vocab;
    lists l = {0};

    *vocab = apr_empty_vocab;
    bool is_attached = false;
    if (apr_json_get_bool(apr_json_get(aprkit, "vocab"), "attached", &is_attached) && is_attached)
        return model->origin.format == APR_FORMAT_GGUF ? apr_gguf_vocab(&model->kv, vocab, &model->arena, model->path, err)
                                                       : apr_hf_vocab_read(model, vocab, &model->arena, err);
    APR_TRY(read_lists(model, root, &l, err));
    if (l.n_tokens > 0) APR_TRY(aprkit != NULL ? read_own(model, root, aprkit, &l, err) : read_foreign(model, root, &l, err));
    return vocab->chat_template == NULL ? copy_text(model, chat, &vocab->chat_template, "the chat template", err) : APR_OK;
}
