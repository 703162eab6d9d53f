/* gguf_vocab_kinds.c - converts GGUF's tokenizers "bert" and "t5" to and from the vocabulary that tokenizer.json gives. */
#include "formats/vocab/gguf_vocab_kinds.h"

#include "formats/base/bytes.h"
#include "formats/vocab/bert_splits.h"
#include "formats/vocab/gguf_vocab.h"
#include "formats/vocab/vocab_index.h"

#include <math.h>
#include <string.h>

#define MARK       "\xe2\x96\x81" /* U+2581 */
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

/* --- what the kinds can express --- */

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

static int type_of(const apr_vocab *v, size_t id) { return v->types != NULL ? v->types[id] : APR_TOKEN_NORMAL; }

/* Tokens that bert stores unchanged. */
static bool is_plain(int type) { return type == APR_TOKEN_CONTROL || type == APR_TOKEN_UNKNOWN; }

static bool begins(apr_str text, const char *head, size_t n) { return text.n_bytes >= n && memcmp(text.text, head, n) == 0; }

/* True: a token within words whose stored text looks like that of a token that begins a word. */
static bool is_mistaken(const apr_vocab *v, size_t id)
{
    const apr_str t = v->tokens[id];
    return !is_plain(type_of(v, id)) && begins(t, WITHIN, N_WITHIN) &&
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
        if (type_of(v, id) == APR_TOKEN_USER)
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
        if (is_scored(type_of(v, id)) && v->log_probs[id] < least) least = v->log_probs[id];
    for (size_t id = 0; id < v->n_tokens; id++) {
        const int type = type_of(v, id);
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

const char *apr_gguf_kind_obstacle(const apr_vocab *v) { return v->kind == APR_VOCAB_WPM ? bert_obstacle(v) : t5_obstacle(v); }

/* --- into the keys --- */

/* `head` followed by `t`. A NULL text: out of memory. */
static apr_str join(const char *head, size_t n_head, apr_str t, apr_arena *arena)
{
    char *const text = apr_arena_alloc(arena, n_head + t.n_bytes + 1);

    if (text == NULL) return (apr_str){0};
    memcpy(text, head, n_head);
    if (t.n_bytes > 0) memcpy(text + n_head, t.text, t.n_bytes);
    text[n_head + t.n_bytes] = '\0';
    return (apr_str){text, n_head + t.n_bytes};
}

static apr_status bert_view(const apr_vocab *v, apr_vocab *view, apr_arena *arena, apr_error *err)
{
    apr_str *const tokens = apr_arena_array(arena, v->n_tokens, sizeof *tokens);
    uint8_t *const types = apr_arena_alloc(arena, v->n_tokens);

    if (tokens == NULL || types == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t id = 0; id < v->n_tokens; id++) {
        const apr_str t = v->tokens[id];
        const bool is_within = begins(t, WITHIN, N_WITHIN);
        types[id] = is_plain(type_of(v, id)) ? APR_TOKEN_CONTROL : (uint8_t)type_of(v, id);
        tokens[id] = is_within ? (apr_str){t.text + N_WITHIN, t.n_bytes - N_WITHIN} : t;
        if (is_plain(type_of(v, id))) tokens[id] = t;
        if (is_plain(type_of(v, id)) || is_within) continue;
        tokens[id] = join(MARK, N_MARK, t, arena);
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

apr_status apr_gguf_kind_view(const apr_vocab *v, apr_vocab *view, apr_arena *arena, apr_error *err)
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
    if (has_kind) *obstacle = apr_gguf_kind_obstacle(v);
    if (*obstacle != NULL) return APR_OK;
    if (!has_kind && apr_vocab_needs_file(v)) {
        *obstacle = v->n_normals > 0 ? "the tokenizer changes text by normalizers that GGUF has no key for"
                                     : "the tokenizer puts a space before words, which GGUF has no key for";
        return APR_OK;
    }
    apr_vocab view;
    APR_TRY(apr_gguf_kind_view(v, &view, arena, err));
    const bool opened = apr_vocab_index_open(&index, &view, APR_ALL_TYPES);
    const int64_t duplicate = index.twin;
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

/* The control token with that text; -1: none. */
static int32_t control_id(const apr_vocab *v, const char *text)
{
    for (size_t id = 0; id < v->n_tokens; id++)
        if (type_of(v, id) == APR_TOKEN_CONTROL && apr_str_is(v->tokens[id], text)) return (int32_t)id;
    return -1;
}

static apr_status put_within(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    uint8_t *const ids = apr_arena_array(kv->arena, v->n_tokens, 4);
    size_t n = 0;

    if (ids == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t id = 0; id < v->n_tokens; id++)
        if (is_mistaken(v, id)) apr_store_le32(ids + 4 * n++, (uint32_t)id);
    const apr_kv item = {.key = apr_str_of(WITHIN_IDS), .type = APR_KV_ARRAY, .elem_type = APR_KV_I32, .n_elems = n, .value.numbers = ids};
    return n > 0 ? apr_kv_set(kv, &item, err) : APR_OK;
}

static apr_status put_bert(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    const int32_t mask_id = control_id(v, "[MASK]");

    APR_TRY(put_within(v, kv, err));
    APR_TRY(apr_kv_set_int(kv, "tokenizer.ggml.cls_token_id", APR_KV_U32, v->bos_id, err));
    APR_TRY(apr_kv_set_int(kv, SEP_ID, APR_KV_U32, v->eos_id, err));
    if (mask_id >= 0) APR_TRY(apr_kv_set_int(kv, "tokenizer.ggml.mask_token_id", APR_KV_U32, mask_id, err));
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
    const apr_kv item = {
        .key = apr_str_of(LOG_PROBS), .type = APR_KV_ARRAY, .elem_type = APR_KV_F64, .n_elems = v->n_tokens, .value.numbers = numbers};
    return is_exact ? APR_OK : apr_kv_set(kv, &item, err);
}

static apr_status put_t5(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    const apr_str map = v->normals[0].from;
    const apr_kv item = {.key = apr_str_of(CHARSMAP),
                         .type = APR_KV_ARRAY,
                         .elem_type = APR_KV_U8,
                         .n_elems = map.n_bytes,
                         .value.numbers = (const uint8_t *)map.text};

    APR_TRY(apr_kv_set_bool(kv, EXTRA, true, err));
    if (v->normals[0].kind == APR_NORMAL_CHARSMAP) APR_TRY(apr_kv_set(kv, &item, err));
    return put_log_probs(v, kv, err);
}

apr_status apr_gguf_put_kind(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    if (v->kind == APR_VOCAB_WPM) return put_bert(v, kv, err);
    return v->kind == APR_VOCAB_UGM ? put_t5(v, kv, err) : APR_OK;
}

/* --- out of the keys --- */

/* The id under the key, or the usual one if the key is missing or wrong; -1: outside the vocabulary. */
static int32_t id_under(const apr_kv_list *kv, const char *key, int64_t usual, const apr_vocab *v)
{
    int64_t id = usual;
    if (!apr_kv_get_int(kv, key, &id) || id < 0 || (uint64_t)id >= v->n_tokens) id = usual;
    return (uint64_t)id < v->n_tokens ? (int32_t)id : -1;
}

/* Sets is_within[id] for each id of the list. Ids outside the vocabulary are ignored. */
static void find_within(const apr_kv_list *kv, bool *is_within, size_t n_tokens)
{
    const apr_kv *const list = apr_kv_find(kv, WITHIN_IDS);

    if (list == NULL || list->type != APR_KV_ARRAY || list->elem_type != APR_KV_I32) return;
    for (uint64_t i = 0; i < list->n_elems; i++) {
        const int64_t id = apr_kv_elem_int(list, i);
        if (id >= 0 && (uint64_t)id < n_tokens) is_within[id] = true;
    }
}

static apr_status read_bert_tokens(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, apr_error *err)
{
    bool *const is_within = apr_arena_array(arena, v->n_tokens, sizeof *is_within);
    apr_str *const tokens = apr_arena_array(arena, v->n_tokens, sizeof *tokens);
    uint8_t *const types = apr_arena_alloc(arena, v->n_tokens);

    if (is_within == NULL || tokens == NULL || types == NULL) return apr_no_memory(err, "the vocabulary");
    find_within(kv, is_within, v->n_tokens);
    for (size_t id = 0; id < v->n_tokens; id++) {
        const apr_str t = v->tokens[id];
        const bool begins_word = begins(t, MARK, N_MARK) && !is_within[id];
        types[id] = (int32_t)id == v->unk_id ? APR_TOKEN_UNKNOWN : v->types[id];
        tokens[id] = begins_word ? (apr_str){t.text + N_MARK, t.n_bytes - N_MARK} : t;
        if (is_plain(types[id])) tokens[id] = t;
        if (is_plain(types[id]) || begins_word) continue;
        tokens[id] = join(WITHIN, N_WITHIN, t, arena);
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
    v->bos_id = id_under(kv, "tokenizer.ggml.bos_token_id", 101, v);
    v->unk_id = id_under(kv, "tokenizer.ggml.unknown_token_id", 100, v);
    v->eos_id = id_under(kv, SEP_ID, 102, v);
    v->pad_id = id_under(kv, "tokenizer.ggml.padding_token_id", 0, v);
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
    v->eos_id = id_under(kv, "tokenizer.ggml.eos_token_id", 1, v);
    v->unk_id = id_under(kv, "tokenizer.ggml.unknown_token_id", 2, v);
    v->pad_id = id_under(kv, "tokenizer.ggml.padding_token_id", 0, v);
    return read_log_probs(kv, v, arena, where, err);
}

apr_status apr_gguf_read_kind(const apr_kv_list *kv, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    if (v->kind == APR_VOCAB_WPM || v->kind == APR_VOCAB_UGM) v->pre = NULL; /* the kind says how text is split */
    if (v->kind == APR_VOCAB_WPM) return read_bert(kv, v, arena, err);
    return v->kind == APR_VOCAB_UGM ? read_t5(kv, v, arena, where, err) : APR_OK;
}
