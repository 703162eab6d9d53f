/* hf_tokenizer.c - reads a checkpoint's tokenizer into a vocabulary: its tables and special tokens, from tokenizer.json (its steps are in
 * hf_pipeline.c), or from the files of checkpoints without one. */
#include "formats/vocab/hf_tokenizer.h"
#include "formats/tensor/text_config.h"
#include "formats/vocab/hf_pipeline.h"
#include "formats/vocab/hf_slow.h"
#include "formats/vocab/sentencepiece.h"
#include "formats/vocab/special_tokens.h"
#include "formats/vocab/tekken.h"
#include "formats/vocab/tiktoken.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct reading {
    const apr_model *model;
    apr_vocab *vocab;
    apr_arena *arena;
    apr_error *err;
    const char *where;         /* the tokenizer.json, in messages */
    cJSON *tokenizer, *config; /* tokenizer.json, tokenizer_config.json; NULL: not there */
    cJSON *generation, *model_config, *special_map, *template_json, *added_file;
    bool takes_added; /* tokens of other files follow those of the tokenizer's file */
    apr_str *tokens;  /* the tables that vocab will point to */
    uint8_t *types, *added;
} reading;

/* The kind of a tokenizer other than BPE, whose rules are all in the pipeline. NONE: *why says what is not supported. */
static apr_vocab_kind general_kind(const apr_hf_pipeline *p, const char **why)
{
    *why = p->unsupported;
    if (p->unsupported[0] != '\0') return APR_VOCAB_NONE;
    if (!p->byte_level) return p->model;
    *why = p->model == APR_VOCAB_WPM ? "ByteLevel before WordPiece" : "ByteLevel before Unigram";
    return APR_VOCAB_NONE;
}

/* Byte-level BPE has spaces in its byte alphabet. SentencePiece has U+2581 for spaces, or byte tokens as a fallback. */
static apr_vocab_kind kind_of(const apr_hf_pipeline *p, bool byte_fallback, const char **why)
{
    const bool spaces = p->add_space_prefix || p->escape_spaces;

    if (p->model != APR_VOCAB_BPE) return general_kind(p, why);
    *why = p->unsupported;
    if (p->unsupported[0] != '\0') return APR_VOCAB_NONE;
    *why = p->normal;
    if (p->n_normals > 0 && !p->byte_level) return APR_VOCAB_NONE;
    if (p->byte_level && !spaces && !byte_fallback) return APR_VOCAB_BPE;
    if (!p->byte_level && (byte_fallback || p->escape_spaces)) return APR_VOCAB_SPM;
    *why =
        p->byte_level ? "ByteLevel together with SentencePiece's spaces or bytes" : "neither ByteLevel nor SentencePiece's spaces or bytes";
    return APR_VOCAB_NONE;
}

/* --- the tables --- */

static apr_str copy_string(const reading *r, const char *text, size_t n_bytes)
{
    return (apr_str){apr_arena_copy(r->arena, text, n_bytes), n_bytes};
}

/* Raises *n_tokens above `id`. Ids far beyond the number of tokens count as damage, not as a vocabulary with holes. */
static apr_status count_id(const reading *r, const cJSON *id_item, const char *text, size_t n_entries, size_t *n_tokens)
{
    int64_t id;
    if (!apr_json_as_int(id_item, &id) || id < 0)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: token '%.100s' has no id", r->where, text != NULL ? text : "");
    if (text == NULL) return apr_fail(r->err, APR_E_DAMAGED, "%s: the added token %" PRId64 " has no content", r->where, id);
    if ((uint64_t)id > 2 * n_entries + 65536)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: token '%.100s' has the id %" PRId64 ", but there are only %zu tokens", r->where, text,
                        id, n_entries);
    if ((size_t)id >= *n_tokens) *n_tokens = (size_t)id + 1;
    return APR_OK;
}

static apr_status count_tokens(const reading *r, const cJSON *entries, const cJSON *added, size_t *n_tokens)
{
    const cJSON *item;
    const size_t n_entries = (size_t)cJSON_GetArraySize(entries) + (size_t)cJSON_GetArraySize(added);
    const int64_t vocab_size = r->model->hparams.vocab_size;

    *n_tokens = cJSON_IsArray(entries) ? (size_t)cJSON_GetArraySize(entries) : 0; /* in a list the position is the id */
    if (!cJSON_IsArray(entries)) cJSON_ArrayForEach(item, entries) APR_TRY(count_id(r, item, item->string, n_entries, n_tokens));
    cJSON_ArrayForEach(item, added)
        APR_TRY(count_id(r, apr_json_get(item, "id"), apr_json_get_string(item, "content"), n_entries, n_tokens));
    if (vocab_size > 0 && (uint64_t)vocab_size > 4 * n_entries + 65536)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: there are %zu tokens, but config.json says %" PRId64, r->where, n_entries, vocab_size);
    if (vocab_size > 0 && (size_t)vocab_size > *n_tokens) *n_tokens = (size_t)vocab_size;
    return APR_OK;
}

static apr_status set_token(reading *r, int64_t id, const char *text)
{
    apr_str *const token = &r->tokens[id];
    const size_t n_bytes = strlen(text);

    if (token->text != NULL && !apr_str_is(*token, text))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the tokens '%.100s' and '%.100s' have the same id %" PRId64, r->where, token->text,
                        text, id);
    if (token->text != NULL) return APR_OK;
    *token = copy_string(r, text, n_bytes);
    r->types[id] = APR_TOKEN_NORMAL;
    return token->text != NULL ? APR_OK : apr_no_memory(r->err, "the tokens");
}

/* A byte of SentencePiece's fallback: "<0xNN>". */
static bool is_byte_token(apr_str token)
{
    return token.n_bytes == 6 && memcmp(token.text, "<0x", 3) == 0 && token.text[5] == '>' &&
           strspn(token.text + 3, "0123456789ABCDEFabcdef") == 2;
}

static apr_status read_added(reading *r, const cJSON *item)
{
    int64_t id = 0;

    apr_json_get_int(item, "id", &id);
    APR_TRY(set_token(r, id, apr_json_get_string(item, "content")));
    r->types[id] = apr_hf_flag(item, "special", false) ? APR_TOKEN_CONTROL : APR_TOKEN_USER;
    r->added[id] = APR_ADDED;
    for (size_t i = 0; i < APR_N_ADDED_FLAGS; i++)
        if (apr_hf_flag(item, apr_added_flags[i].key, false)) r->added[id] |= apr_added_flags[i].flag;
    return APR_OK;
}

/* Names the ids without a token: the embedding has rows for them. */
static apr_status fill_holes(reading *r, size_t n_tokens)
{
    for (size_t id = 0; id < n_tokens; id++) {
        if (r->tokens[id].text != NULL) continue;
        const char *const text = apr_arena_print(r->arena, "[PAD%zu]", id);
        if (text == NULL) return apr_no_memory(r->err, "the tokens");
        r->tokens[id] = apr_str_of(text);
        r->types[id] = APR_TOKEN_UNUSED;
    }
    return APR_OK;
}

/* Unigram's vocabulary is a list of pieces and scores, by id. */
static apr_status check_pieces(const reading *r, const cJSON *entries)
{
    const cJSON *item;
    size_t n = 0;

    cJSON_ArrayForEach(item, entries)
    {
        const cJSON *const score = cJSON_IsArray(item) && item->child != NULL ? item->child->next : NULL;
        if (score == NULL || !cJSON_IsString(item->child) || !cJSON_IsNumber(score) || !isfinite(score->valuedouble))
            return apr_fail(r->err, APR_E_DAMAGED, "%s: piece %zu of model.vocab is not a text and a score", r->where, n);
        n++;
    }
    return APR_OK;
}

/* NaN: a token that is not in the model's list has no score. */
static apr_status read_scores(reading *r, const cJSON *entries, size_t n_tokens)
{
    double *const scores = apr_arena_array(r->arena, n_tokens, sizeof *scores);
    const cJSON *item;
    size_t n = 0;

    if (scores == NULL) return apr_no_memory(r->err, "the tokens");
    cJSON_ArrayForEach(item, entries) scores[n++] = item->child->next->valuedouble;
    while (n < n_tokens) scores[n++] = NAN;
    r->vocab->log_probs = scores;
    return APR_OK;
}

static apr_status read_entries(reading *r, const cJSON *entries)
{
    const cJSON *item;
    int64_t id = 0;

    cJSON_ArrayForEach(item, entries)
    {
        if (!cJSON_IsArray(entries)) apr_json_as_int(item, &id); /* counted and checked before */
        APR_TRY(set_token(r, id, cJSON_IsArray(entries) ? item->child->valuestring : item->string));
        if (r->vocab->kind == APR_VOCAB_SPM && is_byte_token(r->tokens[id])) r->types[id] = APR_TOKEN_BYTE;
        id++;
    }
    return APR_OK;
}

static apr_status read_tokens(reading *r)
{
    const cJSON *const entries = apr_json_get(apr_json_get(r->tokenizer, "model"), "vocab"),
                       *const added = apr_json_get(r->tokenizer, "added_tokens"), *item;
    size_t n_tokens;

    const bool has_pieces = r->vocab->kind == APR_VOCAB_UGM;
    if (has_pieces ? !cJSON_IsArray(entries) : !cJSON_IsObject(entries))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: model.vocab is missing", r->where);
    if (has_pieces) APR_TRY(check_pieces(r, entries));
    APR_TRY(count_tokens(r, entries, added, &n_tokens));
    r->tokens = apr_arena_array(r->arena, n_tokens, sizeof *r->tokens);
    r->types = apr_arena_alloc(r->arena, n_tokens);
    r->added = apr_arena_alloc(r->arena, n_tokens);
    if (r->tokens == NULL || r->types == NULL || r->added == NULL) return apr_no_memory(r->err, "the tokens");
    APR_TRY(read_entries(r, entries));
    if (has_pieces) APR_TRY(read_scores(r, entries, n_tokens));
    cJSON_ArrayForEach(item, added) APR_TRY(read_added(r, item));
    APR_TRY(fill_holes(r, n_tokens));
    r->vocab->tokens = r->tokens;
    r->vocab->types = r->types;
    r->vocab->added = r->added;
    r->vocab->n_tokens = n_tokens;
    return APR_OK;
}

/* "left right", or ["left", "right"] in newer files. */
static bool read_merge(const reading *r, const cJSON *item, apr_str pair[2])
{
    if (cJSON_IsString(item)) {
        const char *const text = item->valuestring, *const space = strchr(text, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL) return false;
        pair[0] = copy_string(r, text, (size_t)(space - text));
        pair[1] = copy_string(r, space + 1, strlen(space + 1));
    } else {
        const cJSON *const left = cJSON_IsArray(item) ? item->child : NULL, *const right = left != NULL ? left->next : NULL;
        if (!cJSON_IsString(left) || !cJSON_IsString(right) || right->next != NULL) return false;
        pair[0] = copy_string(r, left->valuestring, strlen(left->valuestring));
        pair[1] = copy_string(r, right->valuestring, strlen(right->valuestring));
    }
    return pair[0].n_bytes > 0 && pair[1].n_bytes > 0;
}

static apr_status read_merges(reading *r)
{
    const cJSON *const list = apr_json_get(apr_json_get(r->tokenizer, "model"), "merges"), *item;
    size_t n = 0;

    if (!cJSON_IsArray(list)) return apr_fail(r->err, APR_E_DAMAGED, "%s: the list model.merges is missing", r->where);
    apr_str *const merges = apr_arena_array(r->arena, 2 * (size_t)cJSON_GetArraySize(list), sizeof *merges);
    if (merges == NULL) return apr_no_memory(r->err, "the merges");
    cJSON_ArrayForEach(item, list)
    {
        apr_str *const pair = &merges[2 * n];
        if (!read_merge(r, item, pair)) return apr_fail(r->err, APR_E_DAMAGED, "%s: merge %zu is not a pair of tokens", r->where, n);
        if (pair[0].text == NULL || pair[1].text == NULL) return apr_no_memory(r->err, "the merges");
        n++;
    }
    r->vocab->merges = merges;
    r->vocab->n_merges = n;
    return APR_OK;
}

/* --- special tokens --- */

static int32_t id_of(const apr_vocab *vocab, const char *text)
{
    for (size_t id = 0; text != NULL && id < vocab->n_tokens; id++)
        if (apr_str_is(vocab->tokens[id], text)) return (int32_t)id;
    return -1;
}

static int32_t token_under(const apr_vocab *vocab, const cJSON *config, const char *key)
{
    return id_of(vocab, apr_hf_token_text(apr_json_get(config, key)));
}

/* The id of a token that tokenizer_config.json or special_tokens_map.json names; -1: none. */
static int32_t named_id(const reading *r, const apr_special_token *s)
{
    const int32_t id = token_under(r->vocab, r->config, s->hf_token);
    return id >= 0 ? id : token_under(r->vocab, r->special_map, s->hf_token);
}

/* The first of an id or a list of ids; the padding token only if there is no other. -1: none is in the vocabulary. If `stops`, all of them
 * become stop ids. */
static int32_t ids_under(apr_vocab *vocab, const cJSON *config, const char *key, bool stops)
{
    const cJSON *const item = apr_json_get(config, key);
    int32_t first = -1;

    for (const cJSON *one = cJSON_IsArray(item) ? item->child : item; one != NULL; one = cJSON_IsArray(item) ? one->next : NULL) {
        int64_t id;
        if (!apr_json_as_int(one, &id) || !apr_vocab_has_id(vocab, id)) continue;
        if (first < 0 || first == vocab->pad_id) first = (int32_t)id;
        if (stops) apr_vocab_add_stop(vocab, id);
    }
    return first;
}

/* null in tokenizer_config.json means that there is no such token. generation_config.json is not asked then. */
static int32_t special_id(const reading *r, const apr_special_token *s)
{
    int32_t id = named_id(r, s);
    if (id < 0) id = ids_under(r->vocab, r->model_config, s->hf_id, false);
    if (id < 0 && !cJSON_IsNull(apr_json_get(r->config, s->hf_token))) id = ids_under(r->vocab, r->generation, s->hf_id, false);
    return id;
}

/* Most kinds state the unknown token by text, Unigram by id. WordPiece has a default. */
static int32_t unknown_id(const reading *r)
{
    const cJSON *const model = apr_json_get(r->tokenizer, "model");
    const apr_vocab *const v = r->vocab;
    int64_t id;

    if (v->kind == APR_VOCAB_UGM) return apr_json_get_int(model, "unk_id", &id) && apr_vocab_has_id(v, id) ? (int32_t)id : -1;
    if (v->kind == APR_VOCAB_WPM && apr_json_get(model, "unk_token") == NULL) return id_of(v, "[UNK]");
    return token_under(v, model, "unk_token");
}

static void read_added_ends(reading *r)
{
    apr_vocab *const v = r->vocab;
    v->add_bos = apr_hf_flag(r->config, "add_bos_token", v->add_bos) && v->bos_id >= 0;
    v->add_eos = apr_hf_flag(r->config, "add_eos_token", v->add_eos) && v->eos_id >= 0;
}

static void read_specials(reading *r, const apr_hf_pipeline *p)
{
    apr_vocab *const v = r->vocab;
    const cJSON *const text_config = apr_config_text_part(r->model_config);

    for (size_t i = APR_N_SPECIALS; i-- > 0;) /* padding first, because ids_under prefers other tokens */
        if (i != APR_SPECIAL_UNK) *apr_special_id(v, i) = special_id(r, &apr_special_tokens[i]);
    v->unk_id = unknown_id(r);
    if (v->unk_id >= 0) r->types[v->unk_id] = APR_TOKEN_UNKNOWN;

    apr_vocab_add_stop(v, v->eos_id);
    ids_under(v, r->generation, "eos_token_id", true);
    ids_under(v, r->model_config, "eos_token_id", true);
    ids_under(v, text_config, "eos_token_id", true);

    if (p->has_template) {
        const int32_t first = id_of(v, p->first_token), last = id_of(v, p->last_token);
        v->add_bos = first >= 0;
        v->add_eos = last >= 0;
        if (first >= 0) v->bos_id = first;
        if (last >= 0) v->eos_id = last;
    } else {
        read_added_ends(r);
    }
}

static apr_status read_template(reading *r)
{
    const apr_attachment *const file = apr_model_attachment(r->model, "chat_template.jinja");
    const cJSON *const item = apr_json_get(r->config, "chat_template"), *named;
    const char *text = cJSON_IsString(item) ? item->valuestring : apr_json_get_string(r->template_json, "chat_template");

    if (file != NULL && file->n_bytes > 0 && memchr(file->data, '\0', file->n_bytes) != NULL)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: chat_template.jinja contains a NUL byte", r->model->path);
    if (cJSON_IsArray(item))
        cJSON_ArrayForEach(named, item) if (apr_hf_is(named, "name", "default")) text = apr_json_get_string(named, "template");
    if (file != NULL) text = (const char *)file->data;
    if (text == NULL && file == NULL) return APR_OK;
    r->vocab->chat_template = apr_arena_copy(r->arena, text, file != NULL ? file->n_bytes : strlen(text));
    return r->vocab->chat_template != NULL ? APR_OK : apr_no_memory(r->err, "the chat template");
}

/* --- all of it --- */

/* Copies the splitting expression or steps, which are in the JSON's memory. */
static apr_status copy_splits(reading *r, const apr_hf_pipeline *p)
{
    apr_vocab *const v = r->vocab;

    if (p->pattern != NULL) {
        v->pattern = apr_arena_copy(r->arena, p->pattern, strlen(p->pattern));
        if (v->pattern == NULL) return apr_no_memory(r->err, "the splitting expression");
    }
    apr_split *const splits = apr_arena_array(r->arena, p->n_splits, sizeof *splits);
    if (splits == NULL) return apr_no_memory(r->err, "the splitting expressions");
    for (size_t i = 0; i < p->n_splits; i++) {
        splits[i] = p->splits[i];
        splits[i].pattern = apr_arena_copy(r->arena, p->splits[i].pattern, strlen(p->splits[i].pattern));
        if (splits[i].pattern == NULL) return apr_no_memory(r->err, "the splitting expressions");
    }
    v->splits = splits;
    v->n_splits = p->n_splits;
    const apr_pre_rule *const rule = v->n_splits > 0 ? apr_pre_of(v) : NULL;
    v->pre = rule != NULL ? rule->name : apr_pre_name(v->pattern);
    return APR_OK;
}

/* Copies the normalizers, and WordPiece's settings. */
static apr_status copy_general(reading *r, const apr_hf_pipeline *p, const cJSON *model)
{
    apr_vocab *const v = r->vocab;
    apr_normal *const normals = apr_arena_array(r->arena, p->n_normals, sizeof *normals);
    const char *const prefix = apr_json_get_string(model, "continuing_subword_prefix");
    int64_t max_chars = 100;

    if (normals == NULL) return apr_no_memory(r->err, "the normalizers");
    if (p->n_normals > 0) memcpy(normals, p->normals, p->n_normals * sizeof *normals);
    v->normals = normals;
    v->n_normals = p->n_normals;
    if (v->kind != APR_VOCAB_WPM) return APR_OK;
    v->word_prefix = apr_arena_copy(r->arena, prefix != NULL ? prefix : "##", prefix != NULL ? strlen(prefix) : 2);
    if (v->word_prefix == NULL) return apr_no_memory(r->err, "the tokenizer");
    apr_json_get_int(model, "max_input_chars_per_word", &max_chars);
    v->max_word_chars = max_chars > 0 ? (size_t)max_chars : 0;
    return APR_OK;
}

static apr_status read_tokenizer(reading *r)
{
    apr_vocab *const v = r->vocab;
    const cJSON *const model = apr_json_get(r->tokenizer, "model");
    const bool byte_fallback = apr_hf_flag(model, "byte_fallback", false);
    apr_hf_pipeline p;
    const char *why;

    APR_TRY(apr_hf_pipeline_read(&p, r->tokenizer, r->arena, r->err));
    v->kind = kind_of(&p, byte_fallback, &why);
    if (v->kind == APR_VOCAB_NONE) {
        v->unsupported = apr_arena_copy(r->arena, why, strlen(why));
        return v->unsupported != NULL ? APR_OK : apr_no_memory(r->err, "the tokenizer");
    }
    v->nfc = p.nfc;
    v->ignore_merges = apr_hf_flag(model, "ignore_merges", false);
    v->byte_fallback = byte_fallback;
    v->add_space_prefix = p.add_space_prefix;
    v->prefix_unless_space = p.prefix_unless_space;
    v->space_after_added = p.space_after_added;
    v->escape_spaces = p.escape_spaces;
    APR_TRY(copy_general(r, &p, model));
    APR_TRY(copy_splits(r, &p));
    APR_TRY(read_tokens(r));
    if (v->kind == APR_VOCAB_BPE || v->kind == APR_VOCAB_SPM) APR_TRY(read_merges(r));
    read_specials(r, &p);
    return APR_OK;
}

/* Parses an attachment. *json stays as it is if there is no such attachment. */
static apr_status parse_attachment(const reading *r, const char *name, cJSON **json)
{
    const apr_attachment *const file = apr_model_attachment(r->model, name);
    if (file == NULL) return APR_OK;
    const char *const where = apr_arena_print(r->arena, "%s: %s", r->model->path, name);
    if (where == NULL) return apr_no_memory(r->err, "a path");
    return apr_json_parse(json, file->data, file->n_bytes, where, r->err);
}

/* Copies the tables into writable ones of n tokens. The new tokens have no text yet. */
static apr_status grow(reading *r, size_t n)
{
    apr_vocab *const v = r->vocab;
    const size_t n_old = v->n_tokens;
    float *const scores = apr_arena_array(r->arena, n, sizeof *scores);

    r->tokens = apr_arena_array(r->arena, n, sizeof *r->tokens);
    r->types = apr_arena_array(r->arena, n, 1);
    r->added = apr_arena_array(r->arena, n, 1);
    if (scores == NULL || r->tokens == NULL || r->types == NULL || r->added == NULL) return apr_no_memory(r->err, "the tokens");
    memcpy(r->tokens, v->tokens, n_old * sizeof *r->tokens);
    memcpy(r->types, v->types, n_old);
    if (v->added != NULL) memcpy(r->added, v->added, n_old);
    if (v->scores != NULL) memcpy(scores, v->scores, n_old * sizeof *scores);
    v->tokens = r->tokens;
    v->types = r->types;
    v->added = v->added != NULL ? r->added : NULL;
    v->scores = v->scores != NULL ? scores : NULL;
    v->n_tokens = n;
    return APR_OK;
}

/* Adds unused tokens up to the embedding's number of rows, as for a tokenizer.json. */
static apr_status fill_up(reading *r)
{
    const apr_vocab *const v = r->vocab;
    const size_t n_old = v->n_tokens, n = r->model->hparams.vocab_size > 0 ? (size_t)r->model->hparams.vocab_size : 0;

    if (v->kind == APR_VOCAB_NONE || n <= n_old || n > 4 * n_old + 65536) return APR_OK;
    APR_TRY(grow(r, n));
    return fill_holes(r, n);
}

static apr_hf_files slow_files(const reading *r) { return (apr_hf_files){r->added_file, r->config, r->special_map, r->model_config}; }

/* An added token replaces a piece of the same id. SentencePiece's special tokens keep their type. */
static apr_status set_added(reading *r, const cJSON *item)
{
    const char *const text = apr_json_get_string(item, "content");
    int64_t id = 0;

    apr_json_get_int(item, "id", &id); /* counted and checked before */
    const bool same = r->tokens[id].text != NULL && apr_str_is(r->tokens[id], text), is_kept = same && r->types[id] != APR_TOKEN_NORMAL;
    const uint8_t type = r->types[id];
    if (!same) r->tokens[id] = (apr_str){0};
    APR_TRY(read_added(r, item));
    if (is_kept) r->types[id] = type;
    return APR_OK;
}

/* Below the scores of all pieces, so that no merge makes an added token. */
static const float added_score = -1000.0f;

/* Adds tokens after SentencePiece's pieces, or in the place of some. The table of flags is kept only if it says more than the types. */
static apr_status take_added(reading *r, const cJSON *list)
{
    apr_vocab *const v = r->vocab;
    const size_t n_old = v->n_tokens, n_entries = n_old + (size_t)cJSON_GetArraySize(list);
    const cJSON *item;
    size_t n = n_old;
    bool has_flags = v->added != NULL;

    cJSON_ArrayForEach(item, list) APR_TRY(count_id(r, apr_json_get(item, "id"), apr_json_get_string(item, "content"), n_entries, &n));
    APR_TRY(grow(r, n));
    for (size_t id = n_old; v->scores != NULL && id < n; id++) ((float *)(uintptr_t)v->scores)[id] = added_score;
    cJSON_ArrayForEach(item, list) APR_TRY(set_added(r, item));
    APR_TRY(fill_holes(r, n));
    for (size_t id = 0; id < n; id++) {
        has_flags |= (r->added[id] & ~APR_ADDED) != 0;
        if (apr_type_is_added(r->types[id])) r->added[id] |= APR_ADDED;
    }
    v->added = has_flags ? r->added : NULL;
    return APR_OK;
}

static apr_status add_slow_tokens(reading *r)
{
    const apr_hf_files files = slow_files(r);
    cJSON *list = NULL;

    if (r->vocab->kind == APR_VOCAB_NONE || !r->takes_added) return APR_OK;
    apr_status status = apr_hf_added_list(&list, &files, NULL, r->vocab, r->arena, r->model->path, r->err);
    if (status == APR_OK && cJSON_GetArraySize(list) > 0) status = take_added(r, list);
    cJSON_Delete(list);
    return status;
}

/* tokenizer_config.json and special_tokens_map.json decide which tokens are special; otherwise the tokenizer's own file. */
static void read_other_specials(reading *r)
{
    apr_vocab *const v = r->vocab;
    const int32_t own_end = v->eos_id;

    for (size_t i = 0; i < APR_N_SPECIALS; i++) {
        const int32_t id = i != APR_SPECIAL_UNK ? named_id(r, &apr_special_tokens[i]) : -1;
        if (id >= 0) *apr_special_id(v, i) = id;
    }
    if (v->eos_id != own_end) v->n_stop_ids = 0;
    apr_vocab_add_stop(v, v->eos_id);
    read_added_ends(r);
    ids_under(v, r->generation, "eos_token_id", true);
    ids_under(v, r->model_config, "eos_token_id", true);
}

/* Reads vocab.json and merges.txt by making a tokenizer.json of them. */
static apr_status read_slow_bpe(reading *r)
{
    const apr_attachment *const merges = apr_model_attachment(r->model, "merges.txt");
    const apr_hf_files files = slow_files(r);
    cJSON *vocab = NULL;

    if (merges == NULL) return APR_OK;
    APR_TRY(parse_attachment(r, "vocab.json", &vocab));
    if (vocab == NULL) return APR_OK;
    r->where = apr_arena_print(r->arena, "%s: vocab.json and merges.txt", r->model->path);
    if (r->where == NULL) {
        cJSON_Delete(vocab);
        return apr_no_memory(r->err, "a path");
    }
    APR_TRY(apr_hf_slow_bpe(&r->tokenizer, &r->vocab->unsupported, vocab, merges, &files, r->arena, r->model->path, r->err));
    return r->vocab->unsupported == NULL ? read_tokenizer(r) : APR_OK;
}

/* Reads a file of ranks, whose tokenizer class must be known. */
static apr_status read_tiktoken(reading *r, const apr_attachment *file)
{
    const char *const class_name = apr_json_get_string(r->config, "tokenizer_class");
    const char *family = apr_json_get_string(r->model_config, "model_type");
    if (family == NULL) family = r->model->hparams.architecture;
    apr_tiktoken_class class;

    if (!apr_tiktoken_class_of(class_name, family, &class)) {
        r->vocab->unsupported = "tiktoken's file of ranks, and neither a tokenizer.json nor a known tokenizer_class";
        return APR_OK;
    }
    r->takes_added = true;
    if (class.specials == NULL && !cJSON_IsObject(apr_json_get(r->config, "added_tokens_decoder"))) {
        r->vocab->unsupported = "tiktoken's file of ranks without its special tokens (added_tokens_decoder in tokenizer_config.json)";
        return APR_OK;
    }
    return apr_tiktoken_read(file, &class, r->vocab, r->arena, r->where, r->err);
}

/* Reads the tokenizer of a model without tokenizer.json. */
static apr_status read_others(reading *r)
{
    static const char *const names[] = {"tekken.json", "tokenizer.model", "tiktoken.model", "qwen.tiktoken"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const apr_attachment *const file = apr_model_attachment(r->model, names[i]);
        if (file == NULL || file->n_bytes == 0) continue;
        r->where = apr_arena_print(r->arena, "%s: %s", r->model->path, names[i]);
        if (r->where == NULL) return apr_no_memory(r->err, "a path");
        if (i == 0) {
            APR_TRY(apr_tekken_read(file, r->vocab, r->arena, r->where, r->err));
        } else if (apr_is_tiktoken(file)) {
            APR_TRY(read_tiktoken(r, file));
        } else {
            r->takes_added = true;
            APR_TRY(apr_sentencepiece_read(file, r->vocab, r->arena, r->where, r->err));
        }
        APR_TRY(add_slow_tokens(r));
        APR_TRY(fill_up(r));
        read_other_specials(r);
        return APR_OK;
    }
    return read_slow_bpe(r);
}

static apr_status read_vocab(reading *r)
{
    const struct {
        const char *name;
        cJSON **json;
    } files[] = {
        {"tokenizer.json", &r->tokenizer}, {"tokenizer_config.json", &r->config},        {"generation_config.json", &r->generation},
        {"config.json", &r->model_config}, {"special_tokens_map.json", &r->special_map}, {"chat_template.json", &r->template_json}};

    r->where = apr_arena_print(r->arena, "%s: tokenizer.json", r->model->path);
    if (r->where == NULL) return apr_no_memory(r->err, "a path");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) APR_TRY(parse_attachment(r, files[i].name, files[i].json));
    if (r->tokenizer == NULL) APR_TRY(parse_attachment(r, "added_tokens.json", &r->added_file));
    APR_TRY(read_template(r));
    return r->tokenizer != NULL ? read_tokenizer(r) : read_others(r);
}

apr_status apr_hf_vocab_read(const apr_model *model, apr_vocab *vocab, apr_arena *arena, apr_error *err)
{
    reading r = {.model = model, .vocab = vocab, .arena = arena, .err = err};

    *vocab = apr_empty_vocab;
    const apr_status status = read_vocab(&r);
    cJSON *const trees[] = {r.tokenizer, r.config, r.generation, r.model_config, r.special_map, r.template_json, r.added_file};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) cJSON_Delete(trees[i]);
    return status;
}
