/* hf_slow.c - brings the files of checkpoints without tokenizer.json into its form. */
#include "formats/vocab/hf_slow.h"
#include "formats/base/grow.h"
#include "formats/base/text.h"
#include "formats/vocab/special_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- texts that are named as special --- */

/* Sorted by text, because a file may name many and each token is looked up. */
typedef struct special_texts {
    const char **texts;
    size_t n;
} special_texts;

/* True for keys such as "eos_token" (one text) and "additional_special_tokens" (several). */
static bool names_specials(const cJSON *item)
{
    return item->string != NULL && (apr_ends_with(item->string, "_token") || strcmp(item->string, "additional_special_tokens") == 0 ||
                                    strcmp(item->string, "extra_special_tokens") == 0);
}

/* Collects special texts. Only counts them if `texts` is NULL. */
static size_t collect(const cJSON *file, const char **texts)
{
    const cJSON *item;
    size_t n = 0;

    cJSON_ArrayForEach(item, file)
    {
        const bool is_one = apr_hf_token_text(item) != NULL;
        if (!names_specials(item)) continue;
        for (const cJSON *one = is_one ? item : item->child; one != NULL; one = is_one ? NULL : one->next) {
            if (apr_hf_token_text(one) == NULL) continue;
            if (texts != NULL) texts[n] = apr_hf_token_text(one);
            n++;
        }
    }
    return n;
}

static apr_status collect_specials(special_texts *s, const apr_hf_files *files, apr_error *err)
{
    const size_t n = collect(files->config, NULL) + collect(files->special_map, NULL);

    *s = (special_texts){.texts = calloc(n + 1, sizeof *s->texts), .n = n};
    if (s->texts == NULL) return apr_no_memory(err, "the special tokens");
    collect(files->special_map, s->texts + collect(files->config, s->texts));
    qsort(s->texts, n, sizeof *s->texts, apr_compare_texts);
    return APR_OK;
}

static bool is_named(const special_texts *s, const char *text)
{
    return bsearch(&text, s->texts, s->n, sizeof *s->texts, apr_compare_texts) != NULL;
}

/* --- added tokens --- */

typedef struct added_token {
    int64_t id;
    const char *text;
    const cJSON *flags; /* of the decoder's entry, or NULL */
    size_t order;       /* the first one of an id decides */
} added_token;

typedef struct listing {
    added_token *tokens;
    size_t n, capacity;
    special_texts special;
    const apr_hf_files *files;
    const char *where;
    apr_error *err;
} listing;

static apr_status add_token(listing *l, int64_t id, const char *text, const cJSON *flags)
{
    added_token *const tokens = apr_grow(l->tokens, &l->capacity, l->n + 1, sizeof *tokens);
    if (tokens == NULL) return apr_no_memory(l->err, "the added tokens");
    l->tokens = tokens;
    l->tokens[l->n] = (added_token){id, text, flags, l->n};
    l->n++;
    return APR_OK;
}

/* {"32000": {"content": "<|im_end|>", "special": true, ...}} */
static apr_status add_decoder(listing *l)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, apr_json_get(l->files->config, "added_tokens_decoder"))
    {
        char *end = NULL;
        const long long id = item->string != NULL ? strtoll(item->string, &end, 10) : -1;
        const char *const text = apr_hf_token_text(item);
        if (id < 0 || id > INT32_MAX || end == item->string || *end != '\0' || text == NULL || *text == '\0')
            return apr_fail(l->err, APR_E_DAMAGED, "%s: tokenizer_config.json: the added token '%.60s' has no id or no content", l->where,
                            item->string != NULL ? item->string : "");
        APR_TRY(add_token(l, id, text, item));
    }
    return APR_OK;
}

/* {"<|im_end|>": 32000} */
static apr_status add_file(listing *l)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, l->files->added)
    {
        int64_t id;
        if (item->string == NULL || *item->string == '\0' || !apr_json_as_int(item, &id) || id < 0 || id > INT32_MAX)
            return apr_fail(l->err, APR_E_DAMAGED, "%s: added_tokens.json: token '%.60s' has no id", l->where,
                            item->string != NULL ? item->string : "");
        APR_TRY(add_token(l, id, item->string, NULL));
    }
    return APR_OK;
}

/* Adds tokens of the vocabulary that are named as special. Texts of an apr_vocab may lack a terminating NUL, so they are copied. */
static apr_status add_named(listing *l, const cJSON *vocab_file, const apr_vocab *vocab, apr_arena *arena)
{
    const cJSON *item;
    int64_t id;

    if (l->special.n == 0) return APR_OK;
    cJSON_ArrayForEach(item, vocab_file) if (item->string != NULL && apr_json_as_int(item, &id) && is_named(&l->special, item->string))
        APR_TRY(add_token(l, id, item->string, NULL));
    for (size_t i = 0; vocab != NULL && i < vocab->n_tokens; i++) {
        char text[256];
        const apr_str token = vocab->tokens[i];
        if (token.n_bytes == 0 || token.n_bytes >= sizeof text) continue;
        memcpy(text, token.text, token.n_bytes);
        text[token.n_bytes] = '\0';
        if (!is_named(&l->special, text)) continue;
        const char *const copy = apr_arena_copy(arena, token.text, token.n_bytes);
        if (copy == NULL) return apr_no_memory(l->err, "the added tokens");
        APR_TRY(add_token(l, (int64_t)i, copy, NULL));
    }
    return APR_OK;
}

static int by_id(const void *a, const void *b)
{
    const added_token *const x = a, *const y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* added_tokens.json has no flags. Tokens written as <|...|> are special in every known model that has them. */
static bool is_special(const listing *l, const added_token *token)
{
    bool special = is_named(&l->special, token->text) || (apr_begins_with(token->text, "<|") && apr_ends_with(token->text, "|>"));
    if (token->flags != NULL) apr_json_get_bool(token->flags, "special", &special);
    return special;
}

static bool write_token(const listing *l, const added_token *token, cJSON *list)
{
    cJSON *const item = cJSON_CreateObject();

    if (!cJSON_AddItemToArray(list, item)) {
        cJSON_Delete(item);
        return false;
    }
    bool ok = cJSON_AddNumberToObject(item, "id", (double)token->id) != NULL &&
              cJSON_AddStringToObject(item, "content", token->text) != NULL &&
              cJSON_AddBoolToObject(item, "special", is_special(l, token)) != NULL;
    for (size_t i = 0; token->flags != NULL && i < APR_N_ADDED_FLAGS; i++) {
        const char *const key = apr_added_flags[i].key;
        ok = ok && cJSON_AddBoolToObject(item, key, cJSON_IsTrue(apr_json_get(token->flags, key))) != NULL;
    }
    return ok;
}

static apr_status fill_list(listing *l, cJSON *list, const cJSON *vocab_file, const apr_vocab *vocab, apr_arena *arena)
{
    bool ok = true;

    APR_TRY(collect_specials(&l->special, l->files, l->err));
    APR_TRY(add_decoder(l));
    APR_TRY(add_file(l));
    APR_TRY(add_named(l, vocab_file, vocab, arena));
    if (l->n > 0) qsort(l->tokens, l->n, sizeof *l->tokens, by_id);
    for (size_t i = 0; ok && i < l->n; i++)
        if (i == 0 || l->tokens[i].id != l->tokens[i - 1].id) ok = write_token(l, &l->tokens[i], list);
    return ok ? APR_OK : apr_no_memory(l->err, "the added tokens");
}

apr_status apr_hf_added_list(cJSON **list, const apr_hf_files *files, const cJSON *vocab_file, const apr_vocab *vocab, apr_arena *arena,
                             const char *where, apr_error *err)
{
    listing l = {.files = files, .where = where, .err = err};

    *list = cJSON_CreateArray();
    const apr_status status = *list != NULL ? fill_list(&l, *list, vocab_file, vocab, arena) : apr_no_memory(err, "the added tokens");
    free(l.special.texts);
    free(l.tokens);
    return status;
}

/* --- vocab.json and merges.txt --- */

/* The pre-tokenizer of a tokenizer class in tokenizer.json's form. */
#define BYTE_LEVEL(prefix, regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":" regex "}"

/* Classes by name, and by family for checkpoints that name no class. */
static const struct {
    const char *tokenizer_class, *model_types; /* with spaces around each */
    const char *pre;                           /* GGUF's name of the expression; NULL: GPT-2's own */
    bool nfc;
} classes[] = {
    {"Qwen2Tokenizer", " qwen2 qwen2_moe qwen3 qwen3_moe qwen2_vl qwen2_5_vl ", "qwen2", true},
    {"GPT2Tokenizer", " gpt2 gpt_neo gpt_bigcode starcoder2 ", NULL, false},
    {"CodeGenTokenizer", " codegen gptj phi ", NULL, false},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

static int class_of(const apr_hf_files *files)
{
    const char *const name = apr_json_get_string(files->config, "tokenizer_class"), *const type = apr_json_get_string(files->model_config,
                                                                                                                      "model_type");
    char spaced[64];

    for (int i = 0; name != NULL && i < N_CLASSES; i++) {
        const size_t n = strlen(classes[i].tokenizer_class);
        if (strncmp(name, classes[i].tokenizer_class, n) == 0 && (name[n] == '\0' || strcmp(name + n, "Fast") == 0)) return i;
    }
    if (type == NULL || strlen(type) > 60) return -1;
    snprintf(spaced, sizeof spaced, " %s ", type);
    for (int i = 0; i < N_CLASSES; i++)
        if (strstr(classes[i].model_types, spaced) != NULL) return i;
    return -1;
}

/* Lines "left right"; the first may be a comment with the version. */
static cJSON *merges_of(const apr_attachment *file)
{
    cJSON *const list = cJSON_CreateArray();
    const char *at = (const char *)file->data, *const end = at + file->n_bytes;
    bool ok = list != NULL;

    for (bool first = true; ok && at < end; first = false) {
        const char *const line_end = memchr(at, '\n', (size_t)(end - at)), *const stop = line_end != NULL ? line_end : end;
        const size_t n = (size_t)(stop - at) - (stop > at && stop[-1] == '\r');
        const bool is_comment = first && n >= 9 && memcmp(at, "#version:", 9) == 0;
        if (n > 0 && !is_comment) {
            char *const line = strndup(at, n);
            cJSON *const item = line != NULL ? cJSON_CreateString(line) : NULL;
            free(line);
            ok = cJSON_AddItemToArray(list, item);
            if (!ok) cJSON_Delete(item);
        }
        at = stop < end ? stop + 1 : end;
    }
    if (ok) return list;
    cJSON_Delete(list);
    return NULL;
}

static cJSON *split_steps(const char *pattern)
{
    cJSON *const steps =
        cJSON_Parse("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\","
                    "\"invert\":false}," BYTE_LEVEL("false", "false") "]}");
    cJSON *const first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(steps, "pretokenizers"), 0);

    if (steps != NULL && cJSON_AddStringToObject(cJSON_GetObjectItemCaseSensitive(first, "pattern"), "Regex", pattern) != NULL)
        return steps;
    cJSON_Delete(steps);
    return NULL;
}

/* Adds `item` to the object, or deletes it. */
static bool put(cJSON *object, const char *key, cJSON *item)
{
    if (object != NULL && item != NULL && cJSON_AddItemToObject(object, key, item)) return true;
    cJSON_Delete(item);
    return false;
}

static bool build(cJSON *tokenizer, int class, cJSON *vocab, cJSON *added, const apr_attachment *merges, bool prefixed)
{
    cJSON *const model = cJSON_CreateObject();
    const char *const pre = classes[class].pre;
    bool ok = put(tokenizer, "added_tokens", added);

    ok = put(model, "vocab", vocab) && ok;
    ok = ok && cJSON_AddStringToObject(model, "type", "BPE") != NULL && put(model, "merges", merges_of(merges));
    ok = put(tokenizer, "model", model) && ok;
    ok = ok && (!classes[class].nfc || put(tokenizer, "normalizer", cJSON_Parse("{\"type\":\"NFC\"}")));
    return ok && put(tokenizer, "pre_tokenizer",
                     pre != NULL ? split_steps(apr_pre_pattern(pre))
                                 : cJSON_Parse(prefixed ? BYTE_LEVEL("true", "true") : BYTE_LEVEL("false", "true")));
}

apr_status apr_hf_slow_bpe(cJSON **tokenizer, const char **unsupported, cJSON *vocab, const apr_attachment *merges,
                           const apr_hf_files *files, apr_arena *arena, const char *where, apr_error *err)
{
    const char *const name = apr_json_get_string(files->config, "tokenizer_class");
    const int class = class_of(files);
    cJSON *added = NULL;
    bool prefixed = false;

    *tokenizer = NULL;
    *unsupported = NULL;
    if (class < 0) {
        cJSON_Delete(vocab);
        *unsupported =
            apr_arena_print(arena, "vocab.json and merges.txt of the class '%.60s', and no tokenizer.json", name != NULL ? name : "none");
        return *unsupported != NULL ? APR_OK : apr_no_memory(err, "the tokenizer");
    }
    const apr_status status = apr_hf_added_list(&added, files, vocab, NULL, arena, where, err);
    if (status != APR_OK) {
        cJSON_Delete(added);
        cJSON_Delete(vocab);
        return status;
    }
    apr_json_get_bool(files->config, "add_prefix_space", &prefixed);
    *tokenizer = cJSON_CreateObject();
    return build(*tokenizer, class, vocab, added, merges, prefixed) ? APR_OK : apr_no_memory(err, "the tokenizer");
}
