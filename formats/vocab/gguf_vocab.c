/* gguf_vocab.c - reads a tokenizer from GGUF's tokenizer.* keys, and writes them: the kinds "bert" and "t5", named chat templates, and
 * then the keys of all kinds. */
#include "formats/vocab/gguf_vocab.h"
#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/files/checkpoint_names.h"
#include "formats/tensor/metadata.h"
#include "formats/vocab/bert_splits.h"
#include "formats/vocab/gguf_stops.h"
#include "formats/vocab/special_tokens.h"
#include "formats/vocab/spm_scores.h"
#include "formats/vocab/vocab_index.h"

#include <math.h>
#include <string.h>

#define MARK       APR_SPACE_MARK
#define WITHIN     "##"
#define LOWERCASE  "tokenizer.ggml.normalizer.lowercase"
#define ACCENTS    "tokenizer.ggml.normalizer.strip_accents"
#define CHARSMAP   "tokenizer.ggml.precompiled_charsmap"
#define EXTRA      "tokenizer.ggml.remove_extra_whitespaces"
#define LOG_PROBS  "tokenizer.aprkit.log_probs"
#define WITHIN_IDS "tokenizer.aprkit.within_words"
#define SEP_ID     "tokenizer.ggml.seperator_token_id" /* spelled so */

enum { N_MARK = sizeof MARK - 1, N_WITHIN = sizeof WITHIN - 1, MAX_WORD_CHARS = 100 };

/* t5: trailing spaces are removed, repeated spaces become one U+2581, and each word begins with U+2581. */
static const apr_normal spaces[] = {{.kind = APR_NORMAL_STRIP, .flags = APR_STRIP_RIGHT},
                                    {.kind = APR_NORMAL_PATTERN, .from = {" {2,}", 5}, .to = {MARK, N_MARK}}};
static const apr_split words = {.pattern = "\\x{2581}", .behavior = APR_SPLIT_MERGED_WITH_NEXT, .marks = true, .space = APR_SPACE_ALWAYS};
enum { N_SPACES = sizeof spaces / sizeof *spaces };
static const double missing_score = -10000; /* of tokens without a score, as converters write it */

/* --- bert and t5: what they can express --- */

static bool is_split(const apr_split *a, const apr_split *b)
{
    return strcmp(a->pattern, b->pattern) == 0 && a->behavior == b->behavior && a->invert == b->invert && a->letters == b->letters &&
           a->marks == b->marks && a->space == b->space;
}

static bool are_equal(apr_str a, apr_str b) { return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.text, b.text, a.n_bytes) == 0); }

static bool is_normal(const apr_normal *a, const apr_normal *b)
{
    return a->kind == b->kind && a->flags == b->flags && are_equal(a->from, b->from) && are_equal(a->to, b->to);
}

static bool begins(apr_str text, const char *head, size_t n) { return text.n_bytes >= n && memcmp(text.text, head, n) == 0; }

/* True: a token within words whose stored text looks like that of a token that begins a word. */
static bool is_mistaken(const apr_vocab *v, size_t id)
{
    const apr_str t = v->tokens[id];
    return !apr_token_is_control(v, id) && begins(t, WITHIN, N_WITHIN) &&
           begins((apr_str){t.text + N_WITHIN, t.n_bytes - N_WITHIN}, MARK, N_MARK);
}

int64_t apr_gguf_bert_ambiguous(const apr_vocab *v)
{
    for (size_t id = 0; v->kind == APR_VOCAB_WPM && id < v->n_tokens; id++)
        if (is_mistaken(v, id)) return (int64_t)id;
    return -1;
}

static const char *bert_token_obstacle(const apr_vocab *v)
{
    for (size_t id = 0; id < v->n_tokens; id++)
        if (apr_token_type_of(v, id) == APR_TOKEN_USER)
            return "the WordPiece tokenizer has added tokens that are not special, which GGUF's kind bert has no place for";
    return NULL;
}

static const char *bert_obstacle(const apr_vocab *v)
{
    enum { ALWAYS = APR_BERT_CLEAN | APR_BERT_CHINESE };
    bool splits = v->n_splits == APR_N_BERT_SPLITS;

    for (size_t i = 0; splits && i < APR_N_BERT_SPLITS; i++) splits = is_split(&v->splits[i], &apr_bert_splits[i]);
    if (v->n_normals != 1 || v->normals[0].kind != APR_NORMAL_BERT || (v->normals[0].flags & ALWAYS) != ALWAYS)
        return "the WordPiece tokenizer changes text in another way than BERT's, which GGUF's kind bert has no key for";
    if (!splits) return "the WordPiece tokenizer splits text in another way than BERT's, which GGUF's kind bert has no key for";
    if (v->word_prefix == NULL || strcmp(v->word_prefix, WITHIN) != 0 || v->max_word_chars != MAX_WORD_CHARS)
        return "the WordPiece tokenizer has another prefix within words than \"##\", or another limit of a word than 100 characters";
    if (!v->add_bos || !v->add_eos || v->bos_id < 0 || v->eos_id < 0 || v->unk_id < 0)
        return "the WordPiece tokenizer adds no token before and after a text, but readers of GGUF's kind bert do";
    return bert_token_obstacle(v);
}

static bool is_scored(int type) { return type == APR_TOKEN_NORMAL || type == APR_TOKEN_UNKNOWN; }

/* True: the stored scores give the same result, although readers use only those of normal tokens. */
static bool scores_are_kept(const apr_vocab *v)
{
    double least = INFINITY;

    for (size_t id = 0; id < v->n_tokens; id++)
        if (is_scored(apr_token_type_of(v, id)) && v->log_probs[id] < least) least = v->log_probs[id];
    for (size_t id = 0; id < v->n_tokens; id++) {
        const int type = apr_token_type_of(v, id);
        if (is_scored(type) ? isnan(v->log_probs[id]) : type == APR_TOKEN_USER ? !isnan(v->log_probs[id]) : v->log_probs[id] < least)
            return false;
    }
    return true;
}

static const char *t5_obstacle(const apr_vocab *v)
{
    const size_t n_map = v->n_normals > 0 && v->normals[0].kind == APR_NORMAL_CHARSMAP ? 1 : 0;
    bool normals = v->n_normals == n_map + N_SPACES;

    for (size_t i = 0; normals && i < N_SPACES; i++) normals = is_normal(&v->normals[n_map + i], &spaces[i]);
    if (!normals) return "the Unigram tokenizer changes text in another way than T5's, which GGUF's kind t5 has no key for";
    if (v->n_splits != 1 || !is_split(&v->splits[0], &words))
        return "the Unigram tokenizer splits text in another way than T5's, which GGUF's kind t5 has no key for";
    if (v->byte_fallback) return "the Unigram tokenizer has tokens for bytes, which readers of GGUF's kind t5 do not use";
    if (v->log_probs == NULL || v->unk_id < 0) return "the Unigram tokenizer has no scores or no unknown token";
    return scores_are_kept(v) ? NULL
                              : "the Unigram tokenizer has scores for other tokens than the normal ones, which GGUF's kind t5 does not use";
}

/* What GGUF has no key for in a vocabulary of kind WPM or UGM (a clause, constant), or NULL. */
static const char *kind_obstacle(const apr_vocab *v) { return v->kind == APR_VOCAB_WPM ? bert_obstacle(v) : t5_obstacle(v); }

/* --- bert and t5: into the keys --- */

apr_status apr_gguf_put_array(apr_kv_list *kv, const char *key, apr_kv_type type, const void *elems, size_t n, apr_error *err)
{
    apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = type, .n_elems = n};
    if (type == APR_KV_STRING) item.value.strings = elems;
    else item.value.numbers = elems;
    return apr_kv_set(kv, &item, err);
}

/* left, between, right. A NULL text: out of memory. */
static apr_str join(apr_str left, const char *between, apr_str right, apr_arena *arena)
{
    const size_t n_between = strlen(between), n = left.n_bytes + n_between + right.n_bytes;
    char *const text = apr_arena_alloc(arena, n + 1);

    if (text == NULL) return (apr_str){0};
    if (left.n_bytes > 0) memcpy(text, left.text, left.n_bytes);
    memcpy(text + left.n_bytes, between, n_between);
    if (right.n_bytes > 0) memcpy(text + n - right.n_bytes, right.text, right.n_bytes);
    text[n] = '\0';
    return (apr_str){text, n};
}

/* Control tokens are stored unchanged. */
static apr_status bert_view(const apr_vocab *v, apr_vocab *view, apr_arena *arena, apr_error *err)
{
    apr_str *const tokens = apr_arena_array(arena, v->n_tokens, sizeof *tokens);
    uint8_t *const types = apr_arena_alloc(arena, v->n_tokens);

    if (tokens == NULL || types == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t id = 0; id < v->n_tokens; id++) {
        const apr_str t = v->tokens[id];
        const bool is_within = begins(t, WITHIN, N_WITHIN);
        types[id] = apr_token_is_control(v, id) ? APR_TOKEN_CONTROL : (uint8_t)apr_token_type_of(v, id);
        tokens[id] = is_within ? (apr_str){t.text + N_WITHIN, t.n_bytes - N_WITHIN} : t;
        if (apr_token_is_control(v, id)) tokens[id] = t;
        if (apr_token_is_control(v, id) || is_within) continue;
        tokens[id] = join((apr_str){0}, MARK, t, arena);
        if (tokens[id].text == NULL) return apr_no_memory(err, "the vocabulary");
    }
    view->tokens = tokens;
    view->types = types;
    return APR_OK;
}

static apr_status t5_view(const apr_vocab *v, apr_vocab *view, apr_arena *arena, apr_error *err)
{
    float *const scores = apr_arena_array(arena, v->n_tokens, sizeof *scores);

    if (scores == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t id = 0; id < v->n_tokens; id++) scores[id] = (float)(isnan(v->log_probs[id]) ? missing_score : v->log_probs[id]);
    view->scores = scores;
    view->add_space_prefix = true;
    return APR_OK;
}

/* The vocabulary as it is stored in GGUF's arrays; a copy of *vocab for other kinds. */
static apr_status kind_view(const apr_vocab *v, apr_vocab *view, apr_arena *arena, apr_error *err)
{
    *view = *v;
    if (v->n_tokens == 0 || (v->kind != APR_VOCAB_WPM && v->kind != APR_VOCAB_UGM)) return APR_OK;
    view->n_splits = 0; /* implied by the kind */
    return v->kind == APR_VOCAB_WPM ? bert_view(v, view, arena, err) : t5_view(v, view, arena, err);
}

static int text_length(apr_str s) { return s.n_bytes < 60 ? (int)s.n_bytes : 60; }

apr_status apr_gguf_vocab_obstacle(const apr_vocab *v, apr_arena *arena, const char **obstacle, apr_error *err)
{
    apr_vocab_index index;

    *obstacle = NULL;
    if (v->kind == APR_VOCAB_NONE || v->n_tokens == 0) return APR_OK;
    const bool has_kind = v->kind == APR_VOCAB_WPM || v->kind == APR_VOCAB_UGM;
    if (has_kind) *obstacle = kind_obstacle(v);
    if (*obstacle != NULL) return APR_OK;
    if (!has_kind && apr_vocab_needs_file(v)) {
        *obstacle = v->n_normals > 0 ? "the tokenizer changes text by normalizers that GGUF has no key for"
                                     : "the tokenizer puts a space before words, which GGUF has no key for";
        return APR_OK;
    }
    apr_vocab view;
    APR_TRY(kind_view(v, &view, arena, err));
    const bool opened = apr_vocab_index_open(&index, &view, APR_ALL_TYPES);
    const int64_t duplicate = index.duplicate_id;
    apr_vocab_index_close(&index);
    if (!opened) return apr_no_memory(err, "the vocabulary");
    if (duplicate >= 0) {
        const apr_str token = view.tokens[duplicate];
        *obstacle =
            apr_arena_print(arena, "two tokens of the tokenizer are \"%.*s\", which GGUF does not allow", text_length(token), token.text);
        return *obstacle != NULL ? APR_OK : apr_no_memory(err, "the vocabulary");
    }
    for (size_t i = 0; i < v->n_merges && *obstacle == NULL; i++) {
        const apr_str left = v->merges[2 * i], right = v->merges[2 * i + 1];
        const bool reads_back = left.n_bytes > 0 && right.n_bytes > 0 && memchr(left.text + 1, ' ', left.n_bytes - 1) == NULL;
        if (reads_back) continue;
        *obstacle = apr_arena_print(arena, "the tokenizer's merge %zu holds a space, which GGUF's \"left right\" cannot express", i);
        if (*obstacle == NULL) return apr_no_memory(err, "the vocabulary");
    }
    return APR_OK;
}

/* Writes the id, unless it is -1. */
static apr_status put_id(apr_kv_list *kv, const char *key, int32_t id, apr_error *err)
{
    return id >= 0 ? apr_kv_set_int(kv, key, APR_KV_U32, id, err) : APR_OK;
}

/* The control token with that text; -1: none. */
static int32_t control_id(const apr_vocab *v, const char *text)
{
    for (size_t id = 0; id < v->n_tokens; id++)
        if (apr_token_type_of(v, id) == APR_TOKEN_CONTROL && apr_str_is(v->tokens[id], text)) return (int32_t)id;
    return -1;
}

static apr_status put_within(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    uint8_t *const ids = apr_arena_array(kv->arena, v->n_tokens, 4);
    size_t n = 0;

    if (ids == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t id = 0; id < v->n_tokens; id++)
        if (is_mistaken(v, id)) apr_store_le32(ids + 4 * n++, (uint32_t)id);
    return n > 0 ? apr_gguf_put_array(kv, WITHIN_IDS, APR_KV_I32, ids, n, err) : APR_OK;
}

static apr_status put_bert(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    APR_TRY(put_within(v, kv, err));
    APR_TRY(put_id(kv, "tokenizer.ggml.cls_token_id", v->bos_id, err));
    APR_TRY(put_id(kv, SEP_ID, v->eos_id, err));
    APR_TRY(put_id(kv, "tokenizer.ggml.mask_token_id", control_id(v, "[MASK]"), err));
    APR_TRY(apr_kv_set_bool(kv, LOWERCASE, (v->normals[0].flags & APR_BERT_LOWERCASE) != 0, err));
    return apr_kv_set_bool(kv, ACCENTS, (v->normals[0].flags & APR_BERT_ACCENTS) != 0, err);
}

static apr_status put_log_probs(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    uint8_t *const numbers = apr_arena_array(kv->arena, v->n_tokens, sizeof(double));
    bool is_exact = true;

    if (numbers == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t id = 0; id < v->n_tokens; id++) {
        const double number = isnan(v->log_probs[id]) ? missing_score : v->log_probs[id];
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        apr_store_le64(numbers + sizeof bits * id, bits);
        is_exact = is_exact && (double)(float)number == number;
    }
    return is_exact ? APR_OK : apr_gguf_put_array(kv, LOG_PROBS, APR_KV_F64, numbers, v->n_tokens, err);
}

static apr_status put_t5(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    const apr_str map = v->normals[0].from;

    APR_TRY(apr_kv_set_bool(kv, EXTRA, true, err));
    if (v->normals[0].kind == APR_NORMAL_CHARSMAP) APR_TRY(apr_gguf_put_array(kv, CHARSMAP, APR_KV_U8, map.text, map.n_bytes, err));
    return put_log_probs(v, kv, err);
}

/* The keys above and the ids that only these kinds have. */
static apr_status put_kind(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    if (v->kind == APR_VOCAB_WPM) return put_bert(v, kv, err);
    return v->kind == APR_VOCAB_UGM ? put_t5(v, kv, err) : APR_OK;
}

/* --- bert and t5: out of the keys --- */

/* Replaces ids whose key is missing or wrong by those that readers assume; -1: outside the vocabulary. */
static void read_usual_ids(const apr_kv_list *kv, apr_vocab *v)
{
    const bool is_bert = v->kind == APR_VOCAB_WPM;

    for (size_t i = 0; i < APR_N_SPECIALS; i++) {
        const apr_special_token *const s = &apr_special_tokens[i];
        const int64_t usual = is_bert ? s->bert_id : s->t5_id;
        int64_t id = -1;
        if (usual < 0) continue;
        apr_kv_get_int(kv, is_bert && i == APR_SPECIAL_EOS ? SEP_ID : s->gguf_key, &id);
        if (!apr_vocab_has_id(v, id)) id = usual;
        *apr_special_id(v, i) = apr_vocab_has_id(v, id) ? (int32_t)id : -1;
    }
}

/* Sets is_within[id] for each id of the list. Ids outside the vocabulary are ignored. */
static void find_within(const apr_kv_list *kv, const apr_vocab *v, bool *is_within)
{
    const apr_kv *const list = apr_kv_find(kv, WITHIN_IDS);

    if (list == NULL || list->type != APR_KV_ARRAY || list->elem_type != APR_KV_I32) return;
    for (uint64_t i = 0; i < list->n_elems; i++) {
        const int64_t id = apr_kv_elem_int(list, i);
        if (apr_vocab_has_id(v, id)) is_within[id] = true;
    }
}

static apr_status read_bert_tokens(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, apr_error *err)
{
    bool *const is_within = apr_arena_array(arena, v->n_tokens, sizeof *is_within);
    apr_str *const tokens = apr_arena_array(arena, v->n_tokens, sizeof *tokens);
    uint8_t *const types = apr_arena_alloc(arena, v->n_tokens);

    if (is_within == NULL || tokens == NULL || types == NULL) return apr_no_memory(err, "the vocabulary");
    find_within(kv, v, is_within);
    for (size_t id = 0; id < v->n_tokens; id++) {
        const apr_str t = v->tokens[id];
        const bool begins_word = begins(t, MARK, N_MARK) && !is_within[id];
        types[id] = (int32_t)id == v->unk_id ? APR_TOKEN_UNKNOWN : v->types[id];
        tokens[id] = begins_word ? (apr_str){t.text + N_MARK, t.n_bytes - N_MARK} : t;
        if (apr_type_is_control(types[id])) tokens[id] = t;
        if (apr_type_is_control(types[id]) || begins_word) continue;
        tokens[id] = join((apr_str){0}, WITHIN, t, arena);
        if (tokens[id].text == NULL) return apr_no_memory(err, "the vocabulary");
    }
    v->tokens = tokens;
    v->types = types;
    return APR_OK;
}

static apr_status read_bert(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, apr_error *err)
{
    apr_normal *const normal = apr_arena_array(arena, 1, sizeof *normal);
    bool lowercase = true;

    if (normal == NULL) return apr_no_memory(err, "the vocabulary");
    apr_kv_get_bool(kv, LOWERCASE, &lowercase);
    bool accents = lowercase;
    apr_kv_get_bool(kv, ACCENTS, &accents);
    *normal = (apr_normal){
        .kind = APR_NORMAL_BERT,
        .flags = (unsigned)(APR_BERT_CLEAN | APR_BERT_CHINESE | (lowercase ? APR_BERT_LOWERCASE : 0) | (accents ? APR_BERT_ACCENTS : 0))};
    v->normals = normal;
    v->n_normals = 1;
    v->splits = apr_bert_splits;
    v->n_splits = APR_N_BERT_SPLITS;
    v->word_prefix = WITHIN;
    v->max_word_chars = MAX_WORD_CHARS;
    read_usual_ids(kv, v);
    v->add_bos = v->bos_id >= 0;
    v->add_eos = v->eos_id >= 0;
    return read_bert_tokens(kv, v, arena, err);
}

static apr_status read_log_probs(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_kv *const exact = apr_kv_find(kv, LOG_PROBS);
    double *const log_probs = apr_arena_array(arena, v->n_tokens, sizeof *log_probs);

    if (log_probs == NULL) return apr_no_memory(err, "the vocabulary");
    if (exact != NULL && (exact->type != APR_KV_ARRAY || exact->elem_type != APR_KV_F64 || exact->n_elems != v->n_tokens))
        return apr_fail(err, APR_E_DAMAGED, "%s: " LOG_PROBS " is not an array of a number for each token", where);
    for (size_t id = 0; id < v->n_tokens; id++) {
        const double number = exact != NULL ? apr_kv_elem_real(exact, id) : v->scores[id];
        if (!isfinite(number)) return apr_fail(err, APR_E_DAMAGED, "%s: the score of token %zu is not a number", where, id);
        log_probs[id] = is_scored(v->types[id]) ? number : NAN;
    }
    v->log_probs = log_probs;
    v->scores = NULL;
    return APR_OK;
}

static apr_status read_t5(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_kv *const map = apr_kv_find(kv, CHARSMAP);
    apr_normal *const normals = apr_arena_array(arena, 1 + N_SPACES, sizeof *normals);
    bool removes = false;

    if (normals == NULL) return apr_no_memory(err, "the vocabulary");
    if (map != NULL && (map->type != APR_KV_ARRAY || (map->elem_type != APR_KV_U8 && map->elem_type != APR_KV_I8)))
        return apr_fail(err, APR_E_DAMAGED, "%s: " CHARSMAP " is not an array of bytes", where);
    apr_kv_get_bool(kv, EXTRA, &removes);
    if (v->scores == NULL || !removes) {
        v->kind = APR_VOCAB_NONE;
        v->unsupported = !removes ? "a Unigram model that keeps each space" : "a Unigram model without scores";
        return APR_OK;
    }
    if (map != NULL && map->n_elems > 0)
        normals[v->n_normals++] =
            (apr_normal){.kind = APR_NORMAL_CHARSMAP, .from = {(const char *)map->value.numbers, (size_t)map->n_elems}};
    memcpy(normals + v->n_normals, spaces, sizeof spaces);
    v->n_normals += N_SPACES;
    v->normals = normals;
    v->splits = &words;
    v->n_splits = 1;
    v->add_space_prefix = false; /* the split `words` adds it */
    read_usual_ids(kv, v);
    return read_log_probs(kv, v, arena, where, err);
}

/* Completes a vocabulary of these kinds, whose tokens, types, scores and ids are read already. A t5 with other rules becomes
 * APR_VOCAB_NONE with `unsupported`. */
static apr_status read_kind(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    if (v->kind == APR_VOCAB_WPM || v->kind == APR_VOCAB_UGM) v->pre = NULL; /* the kind says how text is split */
    if (v->kind == APR_VOCAB_WPM) return read_bert(kv, v, arena, err);
    return v->kind == APR_VOCAB_UGM ? read_t5(kv, v, arena, where, err) : APR_OK;
}

/* --- named chat templates: tokenizer.chat_template.NAME, and the list of the names --- */

enum { MAX_TEMPLATES = 64 };

typedef struct listing {
    apr_kv_list *kv;
    apr_error *err;
    apr_str names[MAX_TEMPLATES];
    size_t n;
} listing;

/* Characters other than letters, digits and "_" become "_". The default template has another key. Of equal names the first is kept. */
static apr_status put_template(listing *l, const char *name, size_t n_name, const char *text, size_t n_text)
{
    const bool is_usual = n_name == 7 && memcmp(name, "default", 7) == 0;
    char *const key = apr_arena_print(l->kv->arena, APR_TEMPLATE_KEY "%.*s", (int)n_name, name);

    if (key == NULL) return apr_no_memory(l->err, "a chat template");
    for (char *c = key + strlen(APR_TEMPLATE_KEY); *c != '\0'; c++) {
        const bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_';
        if (!is_plain) *c = '_';
    }
    if (is_usual || n_name == 0 || l->n == MAX_TEMPLATES || apr_kv_find(l->kv, key) != NULL) return APR_OK;
    const char *const copy = apr_arena_copy(l->kv->arena, text, n_text);
    if (copy == NULL) return apr_no_memory(l->err, "a chat template");
    l->names[l->n++] = apr_str_of(key + strlen(APR_TEMPLATE_KEY));
    return apr_kv_set_string(l->kv, key, (apr_str){copy, n_text}, l->err);
}

/* "chat_template": [{"name": "default", "template": "..."}, ...] */
static apr_status put_list(listing *l, const apr_attachment *file)
{
    cJSON *json = NULL;
    const cJSON *item;
    apr_status status = apr_json_parse(&json, file->data, file->n_bytes, file->name, l->err);

    if (status == APR_OK && cJSON_IsArray(apr_json_get(json, "chat_template")))
        cJSON_ArrayForEach(item, apr_json_get(json, "chat_template"))
        {
            const char *const name = apr_json_get_string(item, "name"), *const text = apr_json_get_string(item, "template");
            if (status == APR_OK && name != NULL && text != NULL) status = put_template(l, name, strlen(name), text, strlen(text));
        }
    cJSON_Delete(json);
    return status;
}

apr_status apr_gguf_put_templates(const apr_model *layout, apr_kv_list *kv, apr_error *err)
{
    const apr_attachment *const config = apr_model_attachment(layout, "tokenizer_config.json");
    listing l = {.kv = kv, .err = err};

    for (size_t i = 0; i < layout->n_attachments; i++) {
        const apr_attachment *const file = &layout->attachments[i];
        size_t n_name = 0;
        const char *const name = apr_template_name(file->name, &n_name);
        const apr_str text = {(const char *)file->data, file->n_bytes};
        if (name != NULL && apr_str_is_utf8(text)) APR_TRY(put_template(&l, name, n_name, text.text, text.n_bytes));
    }
    if (config != NULL) APR_TRY(put_list(&l, config));
    if (l.n == 0) return APR_OK;
    apr_str *const names = apr_arena_array(kv->arena, l.n, sizeof *names);
    if (names == NULL) return apr_no_memory(err, "the names of chat templates");
    memcpy(names, l.names, l.n * sizeof *names);
    return apr_gguf_put_array(kv, "tokenizer.chat_templates", APR_KV_STRING, names, l.n, err);
}

/* --- all kinds --- */

static const struct {
    apr_vocab_kind kind;
    const char *model; /* tokenizer.ggml.model */
} kinds[] = {{APR_VOCAB_BPE, "gpt2"}, {APR_VOCAB_SPM, "llama"}, {APR_VOCAB_WPM, "bert"}, {APR_VOCAB_UGM, "t5"}, {APR_VOCAB_NONE, "none"}};

#define NO_SPLITTING "" /* tokenizer.aprkit.pattern of a tokenizer that merges across the whole text */

/* --- out of the keys --- */

static apr_status wrong_array(const apr_kv *item, const char *wanted, const char *where, apr_error *err)
{
    return apr_fail(err, APR_E_DAMAGED, "%s: %s is %s%s; an array of %s is expected", where, item->key.text,
                    item->type == APR_KV_ARRAY ? "an array of " : "",
                    apr_kv_type_name(item->type == APR_KV_ARRAY ? item->elem_type : item->type), wanted);
}

/* NULL in *item when the key is missing. n_elems, unless 0, is the length that the array must have. */
static apr_status find_array(const apr_kv_list *kv, const char *key, bool of_strings, size_t n_elems, const apr_kv **item,
                             const char *where, apr_error *err)
{
    const apr_kv *const found = apr_kv_find(kv, key);

    *item = NULL;
    if (found == NULL) return APR_OK;
    if (found->type != APR_KV_ARRAY || (found->elem_type == APR_KV_STRING) != of_strings)
        return wrong_array(found, of_strings ? "strings" : "numbers", where, err);
    if (n_elems > 0 && found->n_elems != n_elems)
        return apr_fail(err, APR_E_DAMAGED, "%s: %s has %llu entries for %zu tokens", where, key, (unsigned long long)found->n_elems,
                        n_elems);
    *item = found;
    return APR_OK;
}

static apr_status read_types(const apr_kv *types, apr_vocab *v, apr_arena *arena, apr_error *err)
{
    uint8_t *const copy = apr_arena_alloc(arena, v->n_tokens);
    if (copy == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t i = 0; i < v->n_tokens; i++) {
        const int64_t type = types != NULL ? apr_kv_elem_int(types, i) : APR_TOKEN_NORMAL;
        copy[i] = type >= APR_TOKEN_NORMAL && type <= APR_TOKEN_BYTE ? (uint8_t)type : APR_TOKEN_NORMAL;
    }
    v->types = copy;
    return APR_OK;
}

static apr_status read_scores(const apr_kv *scores, apr_vocab *v, apr_arena *arena, apr_error *err)
{
    if (scores == NULL) return APR_OK;
    float *const copy = apr_arena_array(arena, v->n_tokens, sizeof *copy);
    if (copy == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t i = 0; i < v->n_tokens; i++) {
        const double score = apr_kv_elem_real(scores, i);
        copy[i] = score >= -3e38 && score <= 3e38 ? (float)score : 0.0f; /* an f64 beyond f32 would be undefined */
    }
    v->scores = copy;
    return APR_OK;
}

/* "left right": neither side holds a space, because the byte alphabet and SentencePiece both write it as another character. */
static apr_status read_merges(const apr_kv *merges, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    if (merges == NULL || merges->n_elems == 0) return APR_OK;
    const size_t n = (size_t)merges->n_elems;
    apr_str *const pairs = apr_arena_array(arena, n, 2 * sizeof *pairs);
    if (pairs == NULL) return apr_no_memory(err, "the merges of the vocabulary");
    for (size_t i = 0; i < n; i++) {
        const apr_str m = merges->value.strings[i];
        const char *const space = m.n_bytes > 2 ? memchr(m.text + 1, ' ', m.n_bytes - 2) : NULL;
        if (space == NULL)
            return apr_fail(err, APR_E_DAMAGED, "%s: merge %zu of the tokenizer is not a pair of tokens separated by a space", where, i);
        const size_t n_left = (size_t)(space - m.text);
        pairs[2 * i] = (apr_str){m.text, n_left};
        pairs[2 * i + 1] = (apr_str){space + 1, m.n_bytes - n_left - 1};
    }
    v->merges = pairs;
    v->n_merges = n;
    return APR_OK;
}

/* A terminated copy of a string key; NULL when it is missing. */
static apr_status copy_string(const apr_kv_list *kv, const char *key, apr_arena *arena, const char **text, apr_error *err)
{
    apr_str s;

    *text = NULL;
    if (!apr_kv_get_string(kv, key, &s)) return APR_OK;
    *text = apr_arena_copy(arena, s.text, s.n_bytes);
    return *text != NULL ? APR_OK : apr_no_memory(err, "the tokenizer");
}

#define SPACE_PREFIX "tokenizer.ggml.add_space_prefix"

/* A flag is written where it is not what readers assume (set_defaults), or where files of the kind always state it. The keys of aprkit are
 * for our own files, other readers ignore them. */
static const struct {
    const char *key;
    size_t offset;
    unsigned stated_by; /* bits of apr_vocab_kind */
} flag_keys[] = {
    {"tokenizer.ggml.add_bos_token", offsetof(apr_vocab, add_bos), ~(1u << APR_VOCAB_BPE)},
    {"tokenizer.ggml.add_eos_token", offsetof(apr_vocab, add_eos), ~(1u << APR_VOCAB_BPE)},
    {SPACE_PREFIX, offsetof(apr_vocab, add_space_prefix), 1u << APR_VOCAB_SPM},
    {"tokenizer.aprkit.nfc", offsetof(apr_vocab, nfc), 0},
    {"tokenizer.aprkit.ignore_merges", offsetof(apr_vocab, ignore_merges), 0},
    {"tokenizer.aprkit.byte_fallback", offsetof(apr_vocab, byte_fallback), 0},
    {"tokenizer.aprkit.escape_spaces", offsetof(apr_vocab, escape_spaces), 0},
    {"tokenizer.aprkit.space_after_added", offsetof(apr_vocab, space_after_added), 0},
    {"tokenizer.aprkit.prefix_unless_space", offsetof(apr_vocab, prefix_unless_space), 0},
};
enum { N_FLAGS = sizeof flag_keys / sizeof *flag_keys };

static bool *flag_at(apr_vocab *v, size_t i) { return (bool *)(void *)((char *)v + flag_keys[i].offset); }

/* tokenizer.aprkit.added: [id, flags, ...] of every added token. Without the key there is no table of flags. */
static apr_status read_added(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_kv *pairs;

    APR_TRY(find_array(kv, "tokenizer.aprkit.added", false, 0, &pairs, where, err));
    if (pairs == NULL) return APR_OK;
    uint8_t *const added = apr_arena_alloc(arena, v->n_tokens);
    if (added == NULL) return apr_no_memory(err, "the vocabulary");
    for (uint64_t i = 0; i + 1 < pairs->n_elems; i += 2) {
        const int64_t id = apr_kv_elem_int(pairs, i), flags = apr_kv_elem_int(pairs, i + 1);
        if (!apr_vocab_has_id(v, id) || flags < 0 || flags > UINT8_MAX)
            return apr_fail(err, APR_E_DAMAGED, "%s: tokenizer.aprkit.added names token %lld of %zu", where, (long long)id, v->n_tokens);
        added[id] = (uint8_t)flags;
    }
    v->added = added;
    return APR_OK;
}

/* Sets the flags to what every reader of GGUF assumes where their keys are missing. has_prefix: the file's own add_space_prefix. */
static void set_defaults(apr_vocab *v, const apr_pre_rule *rule, bool has_prefix)
{
    const bool is_spm = v->kind == APR_VOCAB_SPM;

    v->add_bos = is_spm || (rule != NULL && rule->add_bos);
    v->add_eos = v->kind == APR_VOCAB_UGM;
    v->nfc = !is_spm && rule != NULL && rule->nfc;
    v->ignore_merges = !is_spm && rule != NULL && rule->ignore_merges;
    v->byte_fallback = v->escape_spaces = v->add_space_prefix = is_spm;
    v->space_after_added = is_spm && has_prefix; /* as llama.cpp does after special tokens */
}

/* tokenizer.aprkit.splits: one line of text per splitting step. */
static apr_status read_splits(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_kv *lines;

    APR_TRY(find_array(kv, "tokenizer.aprkit.splits", true, 0, &lines, where, err));
    if (lines == NULL || lines->n_elems == 0) return APR_OK;
    if (lines->n_elems > APR_MAX_SPLITS)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: tokenizer.aprkit.splits has more than %d steps", where, (int)APR_MAX_SPLITS);
    apr_split *const splits = apr_arena_array(arena, (size_t)lines->n_elems, sizeof *splits);
    if (splits == NULL) return apr_no_memory(err, "the tokenizer");
    for (uint64_t i = 0; i < lines->n_elems; i++) {
        const apr_str line = lines->value.strings[i];
        const char *const text = apr_arena_copy(arena, line.text, line.n_bytes);
        if (text == NULL) return apr_no_memory(err, "the tokenizer");
        if (strlen(text) != line.n_bytes || !apr_split_parse(text, &splits[i]))
            return apr_fail(err, APR_E_DAMAGED, "%s: step %llu of tokenizer.aprkit.splits is not understood", where, (unsigned long long)i);
    }
    v->splits = splits;
    v->n_splits = (size_t)lines->n_elems;
    v->pattern = NULL;
    return APR_OK;
}

static apr_status read_rules(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    bool has_prefix = v->kind == APR_VOCAB_SPM;

    APR_TRY(copy_string(kv, "tokenizer.ggml.pre", arena, &v->pre, err));
    APR_TRY(copy_string(kv, "tokenizer.aprkit.pattern", arena, &v->pattern, err));
    const apr_pre_rule *const rule = apr_pre_find(v->pre);
    if (v->kind == APR_VOCAB_BPE && rule != NULL && v->pattern == NULL) {
        v->pattern = rule->pattern;
        v->splits = rule->splits;
        v->n_splits = rule->n_splits;
    }
    APR_TRY(read_splits(kv, v, arena, where, err));
    apr_kv_get_bool(kv, SPACE_PREFIX, &has_prefix);
    set_defaults(v, rule, has_prefix);
    for (size_t i = 0; i < N_FLAGS; i++) apr_kv_get_bool(kv, flag_keys[i].key, flag_at(v, i));
    if (v->pattern != NULL && strcmp(v->pattern, NO_SPLITTING) == 0) v->pattern = v->pre = NULL;
    else if (v->kind == APR_VOCAB_BPE && v->pre == NULL && v->pattern == NULL && v->n_splits == 0)
        v->pre = "default"; /* an unknown rule: it will be refused, not ignored */
    return APR_OK;
}

static apr_status read_ids(const apr_kv_list *kv, apr_vocab *v, const char *where, apr_error *err)
{
    const apr_kv *stops;
    int64_t id;

    for (size_t i = 0; i < APR_N_SPECIALS; i++)
        if (apr_kv_get_int(kv, apr_special_tokens[i].gguf_key, &id) && apr_vocab_has_id(v, id)) *apr_special_id(v, i) = (int32_t)id;
    apr_vocab_add_stop(v, v->eos_id);
    APR_TRY(find_array(kv, "tokenizer.aprkit.stop_ids", false, 0, &stops, where, err));
    for (uint64_t i = 0; stops != NULL && i < stops->n_elems && v->n_stop_ids < APR_MAX_STOP_IDS; i++)
        apr_vocab_add_stop(v, apr_kv_elem_int(stops, i));
    apr_gguf_find_stops(kv, stops != NULL, v);
    return APR_OK;
}

apr_status apr_gguf_vocab(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_kv *tokens, *types, *scores, *merges;
    apr_str model;

    *v = apr_empty_vocab;
    APR_TRY(copy_string(kv, "tokenizer.chat_template", arena, &v->chat_template, err));
    if (!apr_kv_get_string(kv, "tokenizer.ggml.model", &model)) return APR_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (apr_str_is(model, kinds[i].model)) v->kind = kinds[i].kind;
    if (v->kind == APR_VOCAB_NONE) return APR_OK; /* an unknown tokenizer: the weights can still be converted */
    APR_TRY(find_array(kv, "tokenizer.ggml.tokens", true, 0, &tokens, where, err));
    if (tokens == NULL || tokens->n_elems == 0 || tokens->n_elems > INT32_MAX)
        return apr_fail(err, APR_E_DAMAGED,
                        "%s: tokenizer.ggml.model names a tokenizer, but tokenizer.ggml.tokens has none or more than 2^31", where);
    v->n_tokens = (size_t)tokens->n_elems;
    v->tokens = tokens->value.strings;
    APR_TRY(find_array(kv, "tokenizer.ggml.token_type", false, v->n_tokens, &types, where, err));
    APR_TRY(find_array(kv, "tokenizer.ggml.scores", false, v->n_tokens, &scores, where, err));
    APR_TRY(find_array(kv, "tokenizer.ggml.merges", true, 0, &merges, where, err));
    APR_TRY(read_types(types, v, arena, err));
    APR_TRY(read_scores(scores, v, arena, err));
    APR_TRY(read_merges(merges, v, arena, where, err));
    APR_TRY(read_rules(kv, v, arena, where, err));
    APR_TRY(read_added(kv, v, arena, where, err));
    APR_TRY(read_ids(kv, v, where, err));
    return read_kind(kv, v, arena, where, err);
}

/* --- into the keys --- */

/* Writes n numbers of 4 bytes; load(v, i) gives the bits of number i. */
static apr_status put_numbers(apr_kv_list *kv, const char *key, apr_kv_type type, size_t n, uint32_t (*load)(const apr_vocab *, size_t),
                              const apr_vocab *v, apr_error *err)
{
    uint8_t *const numbers = apr_arena_array(kv->arena, n, 4);
    if (numbers == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t i = 0; i < n; i++) apr_store_le32(numbers + 4 * i, load(v, i));
    return apr_gguf_put_array(kv, key, type, numbers, n, err);
}

static uint32_t load_type(const apr_vocab *v, size_t i) { return (uint32_t)apr_token_type_of(v, i); }
static uint32_t load_stop(const apr_vocab *v, size_t i) { return (uint32_t)v->stop_ids[i]; }
static uint32_t load_score(const apr_vocab *v, size_t i)
{
    uint32_t bits;
    memcpy(&bits, &v->scores[i], sizeof bits);
    return bits;
}

static apr_status put_merges(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    apr_str *const joined = apr_arena_array(kv->arena, v->n_merges, sizeof *joined);
    if (joined == NULL) return apr_no_memory(err, "the merges of the vocabulary");
    for (size_t i = 0; i < v->n_merges; i++) {
        joined[i] = join(v->merges[2 * i], " ", v->merges[2 * i + 1], kv->arena);
        if (joined[i].text == NULL) return apr_no_memory(err, "the merges of the vocabulary");
    }
    return apr_gguf_put_array(kv, "tokenizer.ggml.merges", APR_KV_STRING, joined, v->n_merges, err);
}

static apr_status put_ids(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    const apr_gguf_stops stops = apr_gguf_plan_stops(v);

    for (size_t i = 0; i < APR_N_SPECIALS; i++) APR_TRY(put_id(kv, apr_special_tokens[i].gguf_key, apr_special_id_of(v, i), err));
    APR_TRY(put_id(kv, APR_GGUF_EOT, stops.eot_id, err));
    APR_TRY(put_id(kv, APR_GGUF_EOM, stops.eom_id, err));
    if (!stops.needs_list) return APR_OK;
    return put_numbers(kv, "tokenizer.aprkit.stop_ids", APR_KV_I32, v->n_stop_ids, load_stop, v, err);
}

static apr_status put_added(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    size_t n = 0;
    bool as_guessed = true;

    for (size_t id = 0; v->added != NULL && id < v->n_tokens; id++) {
        n += v->added[id] != 0;
        as_guessed = as_guessed && v->added[id] == (apr_type_is_added(apr_token_type_of(v, id)) ? APR_ADDED : 0);
    }
    if (v->added == NULL || as_guessed) return APR_OK;
    uint8_t *const pairs = apr_arena_array(kv->arena, n, 8);
    if (pairs == NULL) return apr_no_memory(err, "the vocabulary");
    uint8_t *p = pairs;
    for (size_t id = 0; id < v->n_tokens; id++) {
        if (v->added[id] == 0) continue;
        apr_store_le32(p, (uint32_t)id);
        apr_store_le32(p + 4, v->added[id]);
        p += 8;
    }
    return apr_gguf_put_array(kv, "tokenizer.aprkit.added", APR_KV_I32, pairs, 2 * n, err);
}

static apr_status put_splits(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    apr_str *const lines = apr_arena_array(kv->arena, v->n_splits, sizeof *lines);
    if (lines == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t i = 0; i < v->n_splits; i++) {
        const char *const line = apr_split_print(&v->splits[i], kv->arena);
        if (line == NULL) return apr_no_memory(err, "the vocabulary");
        lines[i] = apr_str_of(line);
    }
    return apr_gguf_put_array(kv, "tokenizer.aprkit.splits", APR_KV_STRING, lines, v->n_splits, err);
}

static apr_status put_flags(const apr_vocab *v, const apr_pre_rule *rule, apr_kv_list *kv, apr_error *err)
{
    apr_vocab assumed = {.kind = v->kind}, stated = *v;

    stated.add_bos &= v->bos_id >= 0; /* llama.cpp fails if the id is missing */
    stated.add_eos &= v->eos_id >= 0;
    set_defaults(&assumed, rule, v->add_space_prefix);
    for (size_t i = 0; i < N_FLAGS; i++)
        if ((flag_keys[i].stated_by >> v->kind & 1) != 0 || *flag_at(&assumed, i) != *flag_at(&stated, i))
            APR_TRY(apr_kv_set_bool(kv, flag_keys[i].key, *flag_at(&stated, i), err));
    return put_added(v, kv, err);
}

/* Merges and scores of SentencePiece are equivalent. Other readers of GGUF use only the scores. */
static apr_status put_scores(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    apr_vocab scored = *v;
    apr_spm_scores made;

    if (v->scores == NULL && v->kind == APR_VOCAB_SPM) {
        APR_TRY(apr_spm_scores_make(v, kv->arena, &made, err));
        scored.scores = made.scores;
    }
    if (scored.scores == NULL) return APR_OK;
    return put_numbers(kv, "tokenizer.ggml.scores", APR_KV_F32, v->n_tokens, load_score, &scored, err);
}

apr_status apr_gguf_vocab_keys(const apr_vocab *vocab, apr_kv_list *kv, apr_error *err)
{
    apr_vocab view;
    APR_TRY(kind_view(vocab, &view, kv->arena, err));
    const apr_vocab *const v = &view;
    const bool is_bpe = v->kind == APR_VOCAB_BPE, is_none = v->kind == APR_VOCAB_NONE || v->n_tokens == 0;
    const apr_pre_rule *const rule = is_bpe ? apr_pre_of(v) : NULL;
    const char *const own = v->pre != NULL && (!is_bpe || (v->pattern == NULL && v->n_splits == 0)) ? v->pre : "default";
    const char *const pre = rule != NULL ? rule->name : own, *const pattern = v->pattern != NULL ? v->pattern : NO_SPLITTING;
    const bool states_pattern = is_bpe && rule == NULL && v->n_splits == 0 && (v->pattern != NULL || v->pre == NULL);
    const char *model = "none";

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!is_none && kinds[i].kind == v->kind) model = kinds[i].model;
    APR_TRY(apr_kv_set_string(kv, "tokenizer.ggml.model", apr_str_of(model), err));
    if (!is_none) {
        APR_TRY(apr_kv_set_string(kv, "tokenizer.ggml.pre", apr_str_of(pre), err));
        if (rule == NULL && v->n_splits > 0) APR_TRY(put_splits(v, kv, err));
        if (states_pattern) APR_TRY(apr_kv_set_string(kv, "tokenizer.aprkit.pattern", apr_str_of(pattern), err));
        APR_TRY(apr_gguf_put_array(kv, "tokenizer.ggml.tokens", APR_KV_STRING, v->tokens, v->n_tokens, err));
        APR_TRY(put_scores(v, kv, err));
        APR_TRY(put_numbers(kv, "tokenizer.ggml.token_type", APR_KV_I32, v->n_tokens, load_type, v, err));
        if (v->n_merges > 0) APR_TRY(put_merges(v, kv, err));
        APR_TRY(put_ids(v, kv, err));
        APR_TRY(put_flags(v, rule, kv, err));
        APR_TRY(put_kind(vocab, kv, err));
    }
    return v->chat_template != NULL ? apr_kv_set_string(kv, "tokenizer.chat_template", apr_str_of(v->chat_template), err) : APR_OK;
}
