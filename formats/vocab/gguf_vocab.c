/* gguf_vocab.c - reads a tokenizer from GGUF's tokenizer.* keys, and writes them. */
#include "formats/vocab/gguf_vocab.h"
#include "formats/vocab/gguf_stops.h"
#include "formats/vocab/gguf_vocab_kinds.h"
#include "formats/vocab/spm_scores.h"

static const struct {
    apr_vocab_kind kind;
    const char *model; /* tokenizer.ggml.model */
} kinds[] = {{APR_VOCAB_BPE, "gpt2"}, {APR_VOCAB_SPM, "llama"}, {APR_VOCAB_WPM, "bert"}, {APR_VOCAB_UGM, "t5"}, {APR_VOCAB_NONE, "none"}};

#define NO_SPLITTING "" /* tokenizer.aprkit.pattern of a tokenizer that merges across the whole text */

/* Keys of single tokens, and the offsets of their ids in apr_vocab. Keys of tokens that only end a turn are in gguf_stops.c. */
static const struct {
    const char *key;
    size_t offset;
} id_keys[] = {
    {"tokenizer.ggml.bos_token_id", offsetof(apr_vocab, bos_id)},
    {"tokenizer.ggml.eos_token_id", offsetof(apr_vocab, eos_id)},
    {"tokenizer.ggml.unknown_token_id", offsetof(apr_vocab, unk_id)},
    {"tokenizer.ggml.padding_token_id", offsetof(apr_vocab, pad_id)},
};
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

/* Flags that follow from tokenizer.ggml.pre or from the kind of tokenizer. Our own files may override them with these keys, which other
 * readers ignore. */
static const struct {
    const char *key;
    size_t offset;
} own_flags[] = {
    {"tokenizer.aprkit.nfc", offsetof(apr_vocab, nfc)},
    {"tokenizer.aprkit.ignore_merges", offsetof(apr_vocab, ignore_merges)},
    {"tokenizer.aprkit.byte_fallback", offsetof(apr_vocab, byte_fallback)},
    {"tokenizer.aprkit.escape_spaces", offsetof(apr_vocab, escape_spaces)},
    {"tokenizer.aprkit.space_after_added", offsetof(apr_vocab, space_after_added)},
    {"tokenizer.aprkit.prefix_unless_space", offsetof(apr_vocab, prefix_unless_space)},
};
enum { N_OWN_FLAGS = sizeof own_flags / sizeof *own_flags };

static bool *flag_at(apr_vocab *v, size_t i) { return (bool *)(void *)((char *)v + own_flags[i].offset); }

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
        if (id < 0 || (uint64_t)id >= v->n_tokens || flags < 0 || flags > UINT8_MAX)
            return apr_fail(err, APR_E_DAMAGED, "%s: tokenizer.aprkit.added names token %lld of %zu", where, (long long)id, v->n_tokens);
        added[id] = (uint8_t)flags;
    }
    v->added = added;
    return APR_OK;
}

/* Sets the flags without a standard key to the values that every reader of GGUF assumes. */
static void set_defaults(apr_vocab *v, const apr_pre_rule *rule)
{
    const bool is_spm = v->kind == APR_VOCAB_SPM;

    v->nfc = !is_spm && rule != NULL && rule->nfc;
    v->ignore_merges = !is_spm && rule != NULL && rule->ignore_merges;
    v->byte_fallback = v->escape_spaces = is_spm;
    v->space_after_added = is_spm && v->add_space_prefix; /* as llama.cpp does after special tokens */
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
    const bool is_spm = v->kind == APR_VOCAB_SPM;

    APR_TRY(copy_string(kv, "tokenizer.ggml.pre", arena, &v->pre, err));
    APR_TRY(copy_string(kv, "tokenizer.aprkit.pattern", arena, &v->pattern, err));
    const apr_pre_rule *const rule = apr_pre_find(v->pre);
    if (v->kind == APR_VOCAB_BPE && rule != NULL && v->pattern == NULL) {
        v->pattern = rule->pattern;
        v->splits = rule->splits;
        v->n_splits = rule->n_splits;
    }
    v->add_bos = is_spm || (rule != NULL && rule->add_bos);
    v->add_space_prefix = is_spm;
    v->add_eos = v->kind == APR_VOCAB_UGM;
    apr_kv_get_bool(kv, "tokenizer.ggml.add_bos_token", &v->add_bos);
    apr_kv_get_bool(kv, "tokenizer.ggml.add_eos_token", &v->add_eos);
    apr_kv_get_bool(kv, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix);
    APR_TRY(read_splits(kv, v, arena, where, err));
    set_defaults(v, rule);
    for (size_t i = 0; i < N_OWN_FLAGS; i++) apr_kv_get_bool(kv, own_flags[i].key, flag_at(v, i));
    if (v->pattern != NULL && strcmp(v->pattern, NO_SPLITTING) == 0) v->pattern = v->pre = NULL;
    else if (v->kind == APR_VOCAB_BPE && v->pre == NULL && v->pattern == NULL && v->n_splits == 0)
        v->pre = "default"; /* an unknown rule: it will be refused, not ignored */
    return APR_OK;
}

static int32_t *id_of(apr_vocab *v, size_t offset) { return (int32_t *)(void *)((char *)v + offset); }

static apr_status read_ids(const apr_kv_list *kv, apr_vocab *v, const char *where, apr_error *err)
{
    const apr_kv *stops;
    int64_t id;

    for (size_t i = 0; i < sizeof id_keys / sizeof *id_keys; i++)
        if (apr_kv_get_int(kv, id_keys[i].key, &id) && id >= 0 && (uint64_t)id < v->n_tokens) *id_of(v, id_keys[i].offset) = (int32_t)id;
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

    *v = (apr_vocab){.bos_id = -1, .eos_id = -1, .pad_id = -1, .unk_id = -1};
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
    return apr_gguf_read_kind(kv, v, arena, where, err);
}

/* --- into the keys --- */

static apr_status put_strings(apr_kv_list *kv, const char *key, const apr_str *strings, size_t n, apr_error *err)
{
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = n, .value.strings = strings};
    return apr_kv_set(kv, &item, err);
}

/* Writes n numbers of 4 bytes; load(v, i) gives the bits of number i. */
static apr_status put_numbers(apr_kv_list *kv, const char *key, apr_kv_type type, size_t n, uint32_t (*load)(const apr_vocab *, size_t),
                              const apr_vocab *v, apr_error *err)
{
    uint8_t *const numbers = apr_arena_array(kv->arena, n, 4);
    if (numbers == NULL) return apr_no_memory(err, "the vocabulary");
    for (size_t i = 0; i < n; i++) apr_store_le32(numbers + 4 * i, load(v, i));
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = type, .n_elems = n, .value.numbers = numbers};
    return apr_kv_set(kv, &item, err);
}

static uint32_t load_type(const apr_vocab *v, size_t i) { return v->types != NULL ? v->types[i] : APR_TOKEN_NORMAL; }
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
        const apr_str left = v->merges[2 * i], right = v->merges[2 * i + 1];
        char *const text = apr_arena_alloc(kv->arena, left.n_bytes + 1 + right.n_bytes);
        if (text == NULL) return apr_no_memory(err, "the merges of the vocabulary");
        memcpy(text, left.text, left.n_bytes);
        text[left.n_bytes] = ' ';
        memcpy(text + left.n_bytes + 1, right.text, right.n_bytes);
        joined[i] = (apr_str){text, left.n_bytes + 1 + right.n_bytes};
    }
    return put_strings(kv, "tokenizer.ggml.merges", joined, v->n_merges, err);
}

static apr_status put_ids(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    for (size_t i = 0; i < sizeof id_keys / sizeof *id_keys; i++) {
        const int32_t id = *(const int32_t *)(const void *)((const char *)v + id_keys[i].offset);
        if (id >= 0) APR_TRY(apr_kv_set_int(kv, id_keys[i].key, APR_KV_U32, id, err));
    }
    const apr_gguf_stops stops = apr_gguf_plan_stops(v);
    if (stops.eot_id >= 0) APR_TRY(apr_kv_set_int(kv, APR_GGUF_EOT, APR_KV_U32, stops.eot_id, err));
    if (stops.eom_id >= 0) APR_TRY(apr_kv_set_int(kv, APR_GGUF_EOM, APR_KV_U32, stops.eom_id, err));
    if (!stops.needs_list) return APR_OK;
    return put_numbers(kv, "tokenizer.aprkit.stop_ids", APR_KV_I32, v->n_stop_ids, load_stop, v, err);
}

/* True: a reader that ignores the flags treats this token as an added one, because of its type. */
static bool is_added_by_type(const apr_vocab *v, size_t id)
{
    const int type = v->types != NULL ? v->types[id] : APR_TOKEN_NORMAL;
    return type == APR_TOKEN_CONTROL || type == APR_TOKEN_USER || type == APR_TOKEN_UNKNOWN;
}

static apr_status put_added(const apr_vocab *v, apr_kv_list *kv, apr_error *err)
{
    size_t n = 0;
    bool as_guessed = true;

    for (size_t id = 0; v->added != NULL && id < v->n_tokens; id++) {
        n += v->added[id] != 0;
        as_guessed = as_guessed && v->added[id] == (is_added_by_type(v, id) ? APR_ADDED : 0);
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
    const apr_kv item = {.key = apr_str_of("tokenizer.aprkit.added"),
                         .type = APR_KV_ARRAY,
                         .elem_type = APR_KV_I32,
                         .n_elems = 2 * n,
                         .value.numbers = pairs};
    return apr_kv_set(kv, &item, err);
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
    return put_strings(kv, "tokenizer.aprkit.splits", lines, v->n_splits, err);
}

/* Writes the flags that differ from what readers assume. */
static apr_status put_flags(const apr_vocab *v, const apr_pre_rule *rule, apr_kv_list *kv, apr_error *err)
{
    const bool is_bpe = v->kind == APR_VOCAB_BPE, bos_by_rule = rule != NULL && rule->add_bos;
    const bool add_bos = v->add_bos && v->bos_id >= 0, add_eos = v->add_eos && v->eos_id >= 0; /* llama.cpp fails if the id is missing */
    apr_vocab guessed = {.kind = v->kind, .add_space_prefix = v->add_space_prefix}, stated = *v;

    if (!is_bpe || add_bos != bos_by_rule) APR_TRY(apr_kv_set_bool(kv, "tokenizer.ggml.add_bos_token", add_bos, err));
    if (!is_bpe || add_eos) APR_TRY(apr_kv_set_bool(kv, "tokenizer.ggml.add_eos_token", add_eos, err));
    if (v->kind == APR_VOCAB_SPM || v->add_space_prefix)
        APR_TRY(apr_kv_set_bool(kv, "tokenizer.ggml.add_space_prefix", v->add_space_prefix, err));
    set_defaults(&guessed, rule);
    for (size_t i = 0; i < N_OWN_FLAGS; i++)
        if (*flag_at(&guessed, i) != *flag_at(&stated, i)) APR_TRY(apr_kv_set_bool(kv, own_flags[i].key, *flag_at(&stated, i), err));
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
    APR_TRY(apr_gguf_kind_view(vocab, &view, kv->arena, err));
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
        APR_TRY(put_strings(kv, "tokenizer.ggml.tokens", v->tokens, v->n_tokens, err));
        APR_TRY(put_scores(v, kv, err));
        APR_TRY(put_numbers(kv, "tokenizer.ggml.token_type", APR_KV_I32, v->n_tokens, load_type, v, err));
        if (v->n_merges > 0) APR_TRY(put_merges(v, kv, err));
        APR_TRY(put_ids(v, kv, err));
        APR_TRY(put_flags(v, rule, kv, err));
        APR_TRY(apr_gguf_put_kind(vocab, kv, err));
    }
    return v->chat_template != NULL ? apr_kv_set_string(kv, "tokenizer.chat_template", apr_str_of(v->chat_template), err) : APR_OK;
}
